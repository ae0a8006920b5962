"""Groups of candidates that are not significantly different."""

from __future__ import annotations

import pytest

from mops.evaluate.compare import tie_groups


def pairs(*names: str) -> set[frozenset[str]]:
    return {frozenset(pair.split("-")) for pair in names}


@pytest.mark.parametrize(
    ("different", "wanted"),
    [
        (set(), {"a": 1, "b": 1, "c": 1, "d": 1}),
        (pairs("a-d"), {"a": 1, "b": 1, "c": 1, "d": 2}),
        (pairs("a-c", "a-d"), {"a": 1, "b": 1, "c": 2, "d": 2}),
        (pairs("a-c", "a-d", "c-d"), {"a": 1, "b": 1, "c": 2, "d": 3}),
        (pairs("b-d", "b-c"), {"a": 1, "b": 1, "c": 1, "d": 1}),
        # c has few seeds: it does not differ from a, though b, with a better mean, does
        (pairs("a-b", "a-d"), {"a": 1, "b": 2, "c": 1, "d": 2}),
    ],
)
def test_ties_by_their_definition(different: set[frozenset[str]], wanted: dict[str, int]) -> None:
    means = {"d": 0.1, "a": 0.9, "c": 0.3, "b": 0.8}
    assert tie_groups(means, different) == wanted


def test_no_candidates_no_ties() -> None:
    assert tie_groups({}, set()) == {}
