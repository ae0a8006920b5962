"""`mops eval`"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mops.cli.main import echo_json
from mops.cli.options import DATA, DEVICE, JSON, PATH, TASKS, split_names
from mops.cli.screen import ProgressBar, print_scores
from mops.errors import DataError, RunError

if TYPE_CHECKING:
    from mops.config.training import TaskEntry
    from mops.predict.bundle import Bundle
    from mops.record import RunScores

TOLERANCE = 1e-3  # machines round differently; a wrong model differs by more


@click.command()
@click.argument("model", type=PATH)
@DATA
@TASKS
@DEVICE
@click.option("--verify", is_flag=True, help="Fail unless the stored scores are reproduced.")
@JSON
def command(
    model: Path,
    data: str | None,
    tasks: str | None,
    device: str | None,
    verify: bool,
    as_json: bool,
) -> None:
    """Score a trained model on its data, or on other data.

    MODEL is the folder `model` of a run. It names the files it was trained on; --data gives
    another folder with the same layout.

    \b
    Example:
      mops eval runs/first/model --verify
    """
    from mops.predict.bundle import load_bundle

    bundle = load_bundle(model)
    table = score_model(bundle, entries_of(bundle, data, split_names(tasks)), device or "auto")
    if as_json:
        echo_json(table.to_data())
    else:
        print_scores(f"{bundle.layout.plan.name} ({model})", table)
    if verify:
        difference = check_stored(model, bundle.config.get("scores", {}), table.tasks)
        click.echo(f"verified: stored scores reproduced, difference {difference:.2g}", err=as_json)


def score_model(bundle: Bundle, entries: Mapping[str, TaskEntry], device: str) -> RunScores:
    """The scores of a model on all splits of the given tasks."""
    from mops.data.dataset import SPLITS, Dataset, read_task
    from mops.evaluate.evaluate import answer_dataset, judge, score_table
    from mops.predict.predictor import Predictor
    from mops.training.machine import choose_device

    seed = int(bundle.config.get("seed", 0))
    tasks = {name: bundle.layout.tasks[name] for name in entries}
    splits = {name: read_task(entries[name], task, SPLITS)[1] for name, task in tasks.items()}
    scores: dict[str, Any] = {name: {} for name in entries}
    predictor = Predictor(bundle, choose_device(device))
    with ProgressBar("scoring", total=sum(map(len, splits.values()))) as bar:
        for name, split, rows, answers in answer_dataset(
            predictor, Dataset(tasks, splits, {}), seed
        ):
            scores[name] |= judge(answers, rows, split)
            bar.update(advance=1, facts=f"{name} {split}")
    untrained = [name for name in bundle.config.get("untrained", ()) if name in entries]
    return score_table(tasks, scores, untrained)


def check_stored(model: Path, stored: Mapping[str, Any], scores: Mapping[str, Any]) -> float:
    """The largest difference from the bundle's validation scores; an error if it is too large."""
    differences: list[float] = [
        abs(value - scores[name]["validation"][key])
        for name in scores
        for key, value in stored.get(name, {}).get("validation", {}).items()
        if "validation" in scores[name] and key != "stderr"
    ]
    if not differences or max(differences) > TOLERANCE:
        largest = f"{max(differences):.4f}" if differences else "no score in common"
        raise RunError(
            f"{model}: the stored validation scores are not reproduced (largest difference: "
            f"{largest}; allowed {TOLERANCE}); the weights or the data are not those of the run"
        )
    return max(differences)


def entries_of(bundle: Bundle, data: str | None, names: list[str] | None) -> dict[str, TaskEntry]:
    """The tasks to score, with the files that the bundle or the given folder names."""
    from mops.config.training import TaskEntry
    from mops.data.compose import choose_tasks, tasks_in

    known = dict(bundle.entries)
    if data is not None and (moved := moved_entries(known, Path(data))):
        known = moved
    elif data is not None:
        given = {name: entry for name, entry in tasks_in(data).items() if name in known}
        if not given:
            raise DataError(f"{data} has none of the model's tasks: {', '.join(known)}")
        known = {
            name: TaskEntry.model_validate(entry)
            for name, entry in choose_tasks(given, list(given)).items()
        }
    chosen: dict[str, TaskEntry] = choose_tasks(known, names)
    for name, entry in chosen.items():
        missing = [file for file in entry.files().values() if not exists(file)]
        if missing:
            raise DataError(
                f"task {name!r}: {missing[0]} does not exist any more; "
                "pass the folder of the data with --data DIR"
            )
    return chosen


def moved_entries(known: Mapping[str, TaskEntry], folder: Path) -> dict[str, TaskEntry]:
    """The same files in another folder; empty unless all of them exist."""
    moved = {
        name: entry.model_copy(
            update={split: str(folder / Path(file).name) for split, file in entry.files().items()}
        )
        for name, entry in known.items()
    }
    files = [file for entry in moved.values() for file in entry.files().values()]
    return moved if all(map(exists, files)) else {}


def exists(file: str) -> bool:
    return file.startswith("hub:") or Path(file).is_file()
