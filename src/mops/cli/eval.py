"""`mops eval`"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
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
    entries = find_entries(bundle.entries, data, split_names(tasks))
    scores = score_model(bundle, entries, device or "auto")
    if as_json:
        echo_json(asdict(scores))
    else:
        print_scores(f"{bundle.layout.plan.name} ({model})", scores)
    if verify:
        difference = check_stored(model, bundle.config.get("scores", {}), scores.tasks)
        click.echo(f"verified: stored scores reproduced, difference {difference:.2g}", err=as_json)


def score_model(bundle: Bundle, entries: Mapping[str, TaskEntry], device: str) -> RunScores:
    """The scores of a model on all splits of the given tasks."""
    from mops.data.dataset import SPLITS, Dataset, read_task
    from mops.evaluate.evaluate import answer_dataset, judge, score_table
    from mops.predict.predictor import Predictor
    from mops.training.machine import choose_device

    tasks = {name: bundle.layout.tasks[name] for name in entries}
    splits = {name: read_task(entries[name], task, SPLITS)[1] for name, task in tasks.items()}
    scores: dict[str, Any] = {name: {} for name in entries}
    predictor, dataset = Predictor(bundle, choose_device(device)), Dataset(tasks, splits, {})
    answered = answer_dataset(predictor, dataset, int(bundle.config.get("seed", 0)))
    with ProgressBar("scoring", total=sum(map(len, splits.values()))) as bar:
        for name, split, rows, answers in answered:
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


def find_entries(
    known: Mapping[str, TaskEntry], data: str | None, names: list[str] | None
) -> dict[str, TaskEntry]:
    """The named tasks with the files of the bundle, or files of the same names in `data`.

    If those do not all exist, `data` is read like a new folder of data.
    """
    from mops.config.training import TaskEntry
    from mops.data.compose import choose_tasks, tasks_in

    if data is not None:
        moved = {
            name: entry.model_copy(
                update={split: str(Path(data, Path(f).name)) for split, f in entry.files().items()}
            )
            for name, entry in known.items()
        }
        if any(missing_files(entry) for entry in moved.values()):
            new = {name: entry for name, entry in tasks_in(data).items() if name in known}
            if not new:
                raise DataError(f"{data} has none of the model's tasks: {', '.join(known)}")
            new = choose_tasks(new, list(new))
            moved = {name: TaskEntry.model_validate(entry) for name, entry in new.items()}
        known = moved
    chosen: dict[str, TaskEntry] = choose_tasks(known, names)
    for name, entry in chosen.items():
        if missing := missing_files(entry):
            raise DataError(
                f"task {name!r}: {missing[0]} does not exist any more; "
                "pass the folder of the data with --data DIR"
            )
    return chosen


def missing_files(entry: TaskEntry) -> list[str]:
    files = entry.files().values()
    return [file for file in files if not (file.startswith("hub:") or Path(file).is_file())]
