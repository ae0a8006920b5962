"""Random plans for hypothesis: any rows that make sense together."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from building import DEPTH, NAMES, THREE_TASKS, tiny_shape
from mops.plans.layout import find_routes, first_factors
from mops.plans.rows import (
    GATE,
    KINDS,
    ON_TOP,
    PARTS,
    Addition,
    Copies,
    L2Pull,
    Late,
    Rate,
    SharingPlan,
)

few = settings(
    max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
pers = st.sampled_from([(), ("layer",), ("task",), ("layer", "task")])
groups = st.permutations(NAMES).flatmap(
    lambda order: st.sampled_from(
        [(), (tuple(order[:2]),), (tuple(order),), (tuple(order[:2]), tuple(order[2:]))]
    )
)


def rises(ends: tuple[int, int]) -> bool:
    first, last = (n % DEPTH if n < 0 else n for n in ends)
    return first <= last or first == DEPTH


def without_idle_groups(row: Any) -> Any:
    return row if "task" in row.per else replace(row, groups=())


ranges = st.none() | st.tuples(st.integers(-DEPTH, DEPTH), st.integers(-DEPTH, DEPTH - 1)).filter(
    rises
)
copies = st.builds(
    Copies, part=st.sampled_from(["*", "*o*", *PARTS]), per=pers, layers=ranges, groups=groups
).map(without_idle_groups)
late = st.builds(
    Late,
    per=pers,
    groups=groups,
    width=st.sampled_from([0, 16, 40]),
    activation=st.sampled_from(["relu", "gelu", "tanh"]),
).map(without_idle_groups)
norms = st.builds(Late, per=pers, norm=st.just(True))


@st.composite
def additions(draw: st.DrawFn, name: str) -> Addition:
    """Any kind, at any of its sites, each part with copies of its own, with or without a gate."""
    kind = draw(st.sampled_from(list(KINDS)))
    words = KINDS[kind]
    most = None if words.is_sized else 1
    sites = draw(st.lists(st.sampled_from(words.sites), min_size=1, max_size=most, unique=True))
    is_gated = draw(st.booleans())
    per = {part: draw(pers) for part in (*words.parts, *([GATE] if is_gated else []))}
    is_own = any("task" in axes for axes in per.values())
    sizes = {"pal": (0, 12, 24), "lora": (0, 3), "bottleneck": (1, 5), "experts": (2, 4)}
    return Addition(
        name=name,
        kind=kind,
        sites=tuple(sites),
        per=per,
        size=draw(st.sampled_from(sizes.get(kind, (0,)))),
        experts=draw(st.integers(2, 4)) if kind == "experts" else 0,
        activation=draw(st.sampled_from([None, "gelu"])),
        layers=None if sites == [ON_TOP] else draw(ranges),
        depth=draw(st.integers(1, 3)) if ON_TOP in sites else 1,
        scale=draw(st.sampled_from([1.0, 0.5, -0.8])),
        bound=draw(st.sampled_from([0.0, 2.0])) if is_gated else 0.0,
        groups=draw(groups) if is_own else (),
    )


patterns = [*(f"{part}*" for part in PARTS), "*/layer0[12]*", "*similarity*", "late?", "head/*"]
patterns += ["one_*", "*_gate*", "two_up*"]
rates = st.builds(
    Rate, owner=st.sampled_from(patterns), factor=st.sampled_from([0.0, 0.0, 0.25, 2.0])
)
pulls = st.builds(
    L2Pull,
    owner=st.sampled_from([*patterns, "*"]),
    strength=st.sampled_from([0.01, 2.0]),
    towards=st.sampled_from(["copies", "start"]),
)


def without_idle_rows(plan: SharingPlan) -> SharingPlan:
    """Rates and pulls that concern no owner are refused; see test_row_errors."""
    routes = find_routes(plan, THREE_TASKS, tiny_shape(), "mean").values()
    owners = ["pooler", *(owner for route in routes for owner in route.owners)]

    def used(rows: Any) -> Any:
        return tuple(r for r in rows if any(fnmatchcase(owner, r.owner) for owner in owners))

    return replace(plan, rates=used(plan.rates), pull=used(plan.pull))


def can_leave_identity(plan: SharingPlan) -> bool:
    """Where the part that starts at zero is frozen, no other part of its addition ever learns."""
    for route in find_routes(plan, THREE_TASKS, tiny_shape(), "pooler").values():
        for site in (site for sites in route.adapters for site in sites):
            rates = first_factors(plan.rates, site.parts.values())
            last = site.parts[KINDS[site.addition.kind].parts[-1]]
            if any(rates.values()) and not rates[last]:
                return False
    return True


rows = st.builds(
    SharingPlan,
    name=st.just("random"),
    copies=st.lists(copies, max_size=4).map(tuple),
    late=st.lists(late | norms, max_size=3).map(tuple),
    additions=st.tuples(additions("one"), additions("two")).flatmap(
        lambda rows: st.sampled_from([(), rows[:1], rows])
    ),
    rates=st.lists(rates, max_size=3).map(lambda rows: (*rows, Rate(owner="*", factor=1.0))),
    pull=st.lists(pulls, max_size=2).map(tuple),
)
plans = rows.map(without_idle_rows).filter(can_leave_identity)
