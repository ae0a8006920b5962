"""`mops probe`"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from mops.api.progress import ERR, print_warnings
from mops.cli.options import DEVICE, JSON, PATH
from mops.cli.screen import print_table, respond
from mops.errors import RunError, UsageError
from mops.predict.card import Gaps, probe_table
from mops.tasks import Task


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL [MODEL]...", type=PATH)
@DEVICE
@JSON
def command(models: tuple[Path, ...], device: str | None, as_json: bool) -> None:
    """Measure how answers change with names, gender and nationality.

    Asks each model the same sentences, in which only a name or a word for a person changes, and
    prints for every task how far the answers to two groups are apart. With several models (folders
    `model` of runs) the gaps of the later ones are compared with those of the first, on the tasks
    that all of them have. The result is kept in each model's card and shown in its report.

    \b
    Example:
      mops probe runs/first/model
      mops probe runs/separate/model runs/shared/model
    """
    from mops.evaluate.probe import probe
    from mops.predict.bundle import Predictor, load_any, write_facts

    loaded = [load_any(folder) for folder in models]
    tasks = common_tasks([bundle.layout.tasks for bundle in loaded])
    with ERR.status("asking"):
        gaps = probe([Predictor(bundle, device or "cpu") for bundle in loaded], tasks)
    facts = {
        str(folder): [asdict(gap) for gap in own] for folder, own in zip(models, gaps, strict=True)
    }
    respond(as_json, facts, show, facts)
    for bundle, own in zip(loaded, facts.values(), strict=True):
        try:
            write_facts(bundle.folder, bundle.layout, {**bundle.config, "probe": own})
        except RunError as error:
            print_warnings([f"the card of {bundle.folder} was not changed: {error}"])


def common_tasks(models: Sequence[Mapping[str, Task]]) -> dict[str, Task]:
    """The tasks whose texts have answers that all models have; no tags of words."""
    common = {
        name: task
        for name, task in models[0].items()
        if not task.answer.reads_words
        and all(name in tasks and answers(tasks[name]) == answers(task) for tasks in models)
    }
    if not common:
        lists = "; ".join(", ".join(tasks) for tasks in models)
        raise UsageError(
            f"the models have no task with classes, labels or values in common ({lists}); a task "
            "that answers each word is not asked; name others"
        )
    return common


def answers(task: Task) -> tuple[object, ...]:
    return task.is_pair, task.labels, task.range


def show(facts: Mapping[str, Gaps]) -> None:
    for number, (folder, gaps) in enumerate(facts.items(), start=1):
        table = probe_table(gaps).without_empty_columns()
        note = table.note if number == len(facts) else ""
        print_table(folder, table.columns, table.texts, note)
