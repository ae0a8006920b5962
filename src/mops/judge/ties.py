"""Candidates that cannot be told apart form a tie; inside a tie there is no order. numpy only."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def tie_groups(means: Mapping[str, float], different: Collection[frozenset[str]]) -> dict[str, int]:
    """The group of each candidate, from 1; `different` holds the pairs that can be told apart.

    The best candidate and all that cannot be told from it are group 1; the best of the rest and all
    of the rest that cannot be told from that one, are group 2; and so on.
    """
    left = sorted(means, key=lambda name: -means[name])
    groups: dict[str, int] = {}
    number = 0
    while left:
        number += 1
        best = left[0]
        tied = [name for name in left if frozenset((best, name)) not in different]
        groups |= dict.fromkeys(tied, number)
        left = [name for name in left if name not in groups]
    return groups
