"""Plans of models that change after training: tasks join, a task leaves, two models become one.

A plan is data, so each of these is a plan with other rows. Weights follow by their places: what a
task passes at one place of its old route, it passes there on the new one (`moved_owners`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any

from mops.errors import PlanError
from mops.plans.layout import Layout, Route, find_routes, resolve_feeds
from mops.plans.rows import Feed, Groups, Rate, SharingPlan, refuse
from mops.tasks import Task


def join_plan(
    old: SharingPlan, known: Sequence[Task], likes: Mapping[str, str], own: SharingPlan | None
) -> SharingPlan:
    """The plan under which new tasks join the known ones, whose owners are frozen.

    `likes` maps each new task to a known one. What `own` gives per task, the new task has for
    itself; everything else it passes on the route of the task that it is like. Without `own` it
    has what the old plan gives to any task.
    """
    names = tuple(likes)
    if own:
        refuse(own, cannot_join(own, old, names))
    given = own or replace(
        old,
        copies=tuple(row for row in old.copies if not row.tasks),
        additions=tuple(row for row in old.additions if not row.tasks),
    )
    fed = [replace(f, target=n) for f in given.feeds for n in names if fnmatchcase(n, f.target)]
    rates = tuple(row for row in given.rates if row not in old.rates)
    return replace(
        old,
        name=f"{old.name}, {'+'.join(names)} {own.name if own else 'joined'}",
        about=f"{old.about or old.name}; {', '.join(names)} joined when it was trained",
        copies=(*only_for(names, given.copies), *old.copies),
        additions=(*only_for(names, given.additions), *old.additions),
        feeds=(*named_feeds(old, known), *fed),
        rates=(*rates, *old.rates),
        pull=(),
        like={**old.like, **likes},
        frozen=tuple(task.name for task in known),
        depth=given.depth or old.depth,
    )


def only_for(names: tuple[str, ...], rows: Sequence[Any]) -> Iterator[Any]:
    for row in rows:
        groups = tuple(group for group in row.groups if set(group) <= set(names))
        yield replace(row, tasks=names, groups=groups)


def cannot_join(own: SharingPlan, old: SharingPlan, names: tuple[str, ...]) -> Iterator[str]:
    """Rows that would change the answers of the tasks that are there, or mean nothing."""
    who = ", ".join(names)
    if own.late and own.late != old.late:
        yield f"{who} cannot join with late layers of its own; give it training.head: mlp instead"
    if own.pull:
        yield f"{who} cannot join with `pull`: everything that is there is frozen"
    for feed in own.feeds:
        if feed.target not in ("*", *names):
            yield f"a feed into {feed.target!r} would change its answers; only {who} can be fed"
    for group in chain(*(row.groups for row in own.grouped_rows)):
        if not set(group) <= set(names):
            yield f"the group {'+'.join(group)} names tasks that are there; use `like` for that"


def named_feeds(plan: SharingPlan, tasks: Sequence[Task]) -> tuple[Feed, ...]:
    """The feeds between these tasks, each named, so that no later task joins them."""
    return tuple(chain(*resolve_feeds(plan, tasks).values()))


def leave_plan(layout: Layout, name: str) -> SharingPlan:
    """The plan without one task; its first follower (`like`) takes its place in the rows."""
    plan = layout.plan
    tasks = [task for task in layout.tasks.values() if task.name != name]
    fed = [feed.target for feed in named_feeds(plan, list(layout.tasks.values()))
           if feed.source == name]  # fmt: skip
    if fed or not tasks:
        reason = f"it feeds {', '.join(fed)}" if fed else "it is the only task"
        raise PlanError(f"plan {plan.name!r}: {name!r} cannot be removed, {reason}")
    heir = next((task for task, whose in plan.like.items() if whose == name), "")
    like = {task: heir if whose == name else whose for task, whose in plan.like.items()}
    if heir:
        like[heir] = plan.like.get(name, "")

    def kept(rows: Iterable[Any]) -> tuple[Any, ...]:
        own = (replace(row, groups=renamed_groups(row.groups, name, heir)) for row in rows)
        return tuple(
            replace(row, tasks=renamed(row.tasks, name, heir))
            for row in own
            if not row.tasks or renamed(row.tasks, name, heir)
        )

    left = replace(
        plan,
        copies=kept(plan.copies),
        additions=kept(plan.additions),
        late=tuple(replace(r, groups=renamed_groups(r.groups, name, "")) for r in plan.late),
        feeds=tuple(f for f in named_feeds(plan, list(layout.tasks.values())) if f.target != name),
        like={task: whose for task, whose in like.items() if whose and task != name},
        frozen=tuple(task for task in plan.frozen if task != name),
    )
    return with_matching_rows(left, tasks, layout)


def renamed(tasks: Iterable[str], name: str, heir: str) -> tuple[str, ...]:
    """The tasks with the heir, if there is one, in the place of a task that leaves."""
    return tuple(dict.fromkeys(n for task in tasks if (n := heir if task == name else task)))


def renamed_groups(groups: Groups, name: str, heir: str) -> Groups:
    return tuple(left for group in groups if (left := renamed(group, name, heir)))


def with_matching_rows(plan: SharingPlan, tasks: Sequence[Task], layout: Layout) -> SharingPlan:
    """The plan without rates and pulls that match no owner; a last rate covers the others."""
    routes = find_routes(plan, tasks, layout.encoder, layout.reading.pool).values()
    owners = set(chain(*(route.owners for route in routes)))

    def matching(rows: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(r for r in rows if any(fnmatchcase(owner, r.owner) for owner in owners))

    rates, rest = matching(plan.rates), Rate(owner="*", factor=1.0)
    rates = rates if rest in rates else (*rates, rest)
    return replace(plan, rates=rates, pull=matching(plan.pull))


def merge_plans(one: Layout, other: Layout) -> SharingPlan:
    """One plan for the tasks of two, whose rows for all tasks must be the same but for groups."""
    a, b = one.plan, other.plan
    feeds = (named_feeds(plan.plan, list(plan.tasks.values())) for plan in (one, other))
    return replace(
        a,
        name=a.name if a.name == b.name else f"{a.name} & {b.name}",
        about=a.about if a.about == b.about else f"{a.about}; {b.about}",
        copies=joined_rows(a, b, "copies"),
        additions=joined_rows(a, b, "additions"),
        late=joined_rows(a, b, "late"),
        feeds=tuple(dict.fromkeys(chain(*feeds))),
        rates=(*(row for row in b.rates if row not in a.rates), *a.rates),
        pull=tuple(dict.fromkeys((*a.pull, *b.pull))),
        like={**a.like, **b.like},
        frozen=tuple(dict.fromkeys((*a.frozen, *b.frozen))),
    )


def joined_rows(a: SharingPlan, b: SharingPlan, kind: str) -> tuple[Any, ...]:
    """The rows that one of the plans has for some tasks, then those that both have for all."""
    rows = [list(getattr(plan, kind)) for plan in (a, b)]
    own = [[row for row in each if getattr(row, "tasks", ())] for each in rows]
    common = [[row for row in each if not getattr(row, "tasks", ())] for each in rows]
    bare = [[replace(row, groups=()) for row in each] for each in common]
    if bare[0] != bare[1]:
        raise PlanError(
            f"the plans {a.name!r} and {b.name!r} differ in the `{kind}` that all tasks have; "
            "only models with the same rows can be merged"
        )
    grouped = (
        replace(x, groups=tuple(dict.fromkeys((*x.groups, *y.groups))))
        for x, y in zip(*common, strict=True)
    )
    return (*own[0], *(row for row in own[1] if row not in own[0]), *grouped)


def moved_owners(old: Layout, new: Layout) -> dict[str, str]:
    """New owner -> the old owner at the same place of a task that is in both layouts.

    Refuses a new plan that computes something else for one of these tasks.
    """
    moved: dict[str, str] = {}
    for task in (task for task in new.tasks if task in old.tasks):
        before, after = old.routes[task], new.routes[task]
        is_same = functions_of(old, before) == functions_of(new, after)
        pairs = [(after.slots[p], owner) for p, owner in before.slots.items()] if is_same else []
        for owner, former in (*pairs, (after.head, before.head)):
            is_same = is_same and moved.setdefault(owner, former) == former
        if not is_same:
            raise PlanError(
                f"plan {new.plan.name!r}: {task!r} would pass other weights than before, so its "
                "answers would change"
            )
    return moved


def functions_of(layout: Layout, route: Route) -> list[Any]:
    """What a route computes, whoever owns the weights."""
    added = [[(s.site, replace(s.addition, groups=(), tasks=())) for s in sites]
             for sites in route.adapters]  # fmt: skip
    while added and not added[-1]:  # places on top that only other tasks use
        added.pop()
    late = [replace(row, per=(), groups=()) for row in layout.plan.late]
    return [added, late, sorted(route.slots, key=str), route.feeds, layout.reading.pool]


def starting_owners(old: Layout, new: Layout) -> dict[str, str]:
    """`moved_owners`, and what a new task has at a place: a copy of what it is like has there."""
    starts = moved_owners(old, new)
    for task in (task for task in new.tasks if task not in old.tasks):
        like = next(name for name in new.plan.lineage(task) if name in old.tasks)
        theirs = old.routes[like].slots
        for place, owner in new.routes[task].slots.items():
            if place in theirs and new.sizes[owner] == old.sizes[theirs[place]]:
                starts.setdefault(owner, theirs[place])
    return starts
