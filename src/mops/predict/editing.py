"""Bundles from bundles, without training: a task is removed, or two models become one."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from mops.errors import UsageError, nearest
from mops.files import holds
from mops.model.network import Network
from mops.plans.joining import leave_plan, merge_plans, moved_owners
from mops.plans.layout import Layout, lay_out
from mops.plans.shapes import Reading
from mops.predict.bundle import READING_KEYS, Bundle, save_bundle

BY_TASK = ("scores", "main_scores", "data")  # facts of a bundle with an entry per task


def remove_task(bundle: Bundle, name: str, out: Path) -> Layout:
    """Write a bundle without one task and without the weights that only it used."""
    old = bundle.layout
    if name not in old.tasks:
        known = ", ".join(old.tasks)
        raise UsageError(f"no task {name!r} in {bundle.folder}; it has {known}."
                         f"{nearest(name, old.tasks)}")  # fmt: skip
    tasks = [task for task in old.tasks.values() if task.name != name]
    layout = lay_out(leave_plan(old, name), tasks, old.encoder, without(old.reading, name))
    network = Network(layout)
    bundle.copy_owners(network, moved_owners(old, layout))
    write_edited(out, network, [bundle])
    return layout


def without(reading: Reading, name: str) -> Reading:
    def rest(by_task: Mapping[str, Any]) -> dict[str, Any]:
        return {task: value for task, value in by_task.items() if task != name}

    pair = reading.pair if isinstance(reading.pair, str) else rest(reading.pair)
    return replace(reading, pair=pair, heads=rest(reading.heads))


def merge_bundles(one: Bundle, other: Bundle, out: Path) -> Layout:
    """Write one bundle with the tasks of both; what both have must be equal, bit for bit."""
    for problem in unmergeable(one, other):
        raise UsageError(f"{one.folder} and {other.folder} cannot be merged: {problem}")
    a, b = one.layout, other.layout
    pair: Any = a.reading.pair
    if isinstance(pair, Mapping) and isinstance(b.reading.pair, Mapping):
        pair = {**b.reading.pair, **pair}
    reading: Reading = replace(a.reading, pair=pair, heads={**b.reading.heads, **a.reading.heads})
    tasks = {**a.tasks, **{name: task for name, task in b.tasks.items() if name not in a.tasks}}
    layout = lay_out(merge_plans(a, b), list(tasks.values()), a.encoder, reading)
    network = Network(layout)
    moved = moved_owners(a, layout), moved_owners(b, layout)
    for owner in (owner for owner in moved[0] if owner in moved[1]):
        ours, theirs = one.network.bank[moved[0][owner]], other.network.bank[moved[1][owner]]
        pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
        if not all(mine.equal(yours) for mine, yours in pairs):
            raise UsageError(
                f"{one.folder} and {other.folder} cannot be merged: the plan shares {owner!r}, and "
                "its weights differ; only models that grew from one, or were frozen there, fit"
            )
    one.copy_owners(network, moved[0])
    other.copy_owners(network, moved[1])
    write_edited(out, network, [other, one])
    return layout


def unmergeable(one: Bundle, other: Bundle) -> Iterator[str]:
    """What makes two bundles read texts differently."""
    a, b = one.layout, other.layout
    common = [key for key in READING_KEYS if key not in ("pair", "heads")]
    facts = [(f"training.{key}", *(getattr(x.reading, key) for x in (a, b))) for key in common]
    facts += [("encoder", *(x.config.get("encoder_sha256") for x in (one, other)))]
    facts += [("pair", *(x.reading.pair if isinstance(x.reading.pair, str) else "per task"
                         for x in (a, b)))]  # fmt: skip
    for what, mine, yours in facts:
        if mine != yours:
            yield f"{what} is {mine} in the first and {yours} in the second"
    if keys := differing(a.encoder, b.encoder):
        yield f"their encoders differ in {keys}"
    for name in (name for name in a.tasks if name in b.tasks):
        if keys := differing(a.tasks[name], b.tasks[name]):
            yield (
                f"both have a task {name!r}, which differs in {keys}; take it out of one of them "
                "with `mops remove-task`"
            )
    if one.tokenizer.to_str() != other.tokenizer.to_str():
        yield "they have different tokenizers"


def differing(one: Any, other: Any) -> str:
    """The names of the fields of a dataclass whose values are not the same."""
    names = (field.name for field in fields(one))
    return ", ".join(name for name in names if getattr(one, name) != getattr(other, name))


def write_edited(out: Path, network: Network, sources: list[Bundle]) -> None:
    """Write the bundle with what is known about its tasks; of several sources the last counts."""
    if holds(out, "config.json", kind="model"):
        raise UsageError(f"{out} holds a model already; name a new folder with --out")
    tasks, reserved = network.layout.tasks, ("mops_bundle", "encoder", "base_sha256", *READING_KEYS)
    facts: dict[str, Any] = {}
    for source in sources:
        facts |= {k: v for k, v in source.config.items() if k not in (*reserved, *BY_TASK)}
    for key in BY_TASK:
        known = {n: v for source in sources for n, v in source.config.get(key, {}).items()}
        facts[key] = {name: known[name] for name in tasks if name in known}
    untrained = {name for source in sources for name in source.config.get("untrained", ())}
    facts["untrained"] = [name for name in tasks if name in untrained]
    entries = {name: entry for source in sources for name, entry in source.entries.items()}
    ordered = {name: entries[name] for name in tasks}
    save_bundle(out, network, sources[0].tokenizer, ordered, facts)
