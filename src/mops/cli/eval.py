"""`mops eval`"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import mops
from mops.api.progress import ProgressBar
from mops.cli.options import BACKEND, DATA, DEVICE, JSON, PATH, TASKS, load_predictor
from mops.cli.screen import echo, print_parts, respond
from mops.config.training import TaskEntry
from mops.data.compose import choose_tasks, tasks_in
from mops.data.dataset import SPLITS, Dataset, read_task, shared_files
from mops.data.tables import HUB
from mops.errors import DataError, RunError, UsageError
from mops.evaluate.evaluate import answer_dataset, judge, run_table, score_table
from mops.files import file_digest
from mops.predict.bundle import Loaded
from mops.record import RunScores

TOLERANCE = 1e-3  # machines round differently; a wrong model differs by more


@click.command()
@click.argument("model", type=PATH)
@DATA
@TASKS
@DEVICE
@BACKEND
@click.option("--verify", is_flag=True, help="Fail unless the stored scores are reproduced.")
@JSON
def command(
    model: Path,
    device: str | None,
    backend: str | None,
    verify: bool,
    as_json: bool,
    **files: Any,
) -> None:
    """Score a trained model on its data, or on other data.

    MODEL is the folder `model` of a run. It names the files it was trained on, which are read if
    they have not changed since; --data gives another folder with the same layout.

    \b
    Example:
      mops eval runs/first/model --verify
    """
    predictor = load_predictor(model, device, backend)
    bundle = predictor.bundle
    if verify and bundle.config.get("onnx", {}).get("weights") == "int8":
        raise UsageError(
            f"{model} has weights in 8 bits, and the stored scores are those of float32; leave out "
            "--verify, README.md in the folder has the change of every score"
        )
    scores = score_model(predictor, find_entries(bundle, **files))
    table = run_table(f"{bundle.layout.plan.name} ({model})", scores)
    respond(as_json, asdict(scores), print_parts, [table])
    if verify:
        difference = check_stored(model, bundle.config.get("scores", {}), scores.tasks)
        echo(f"verified: stored scores reproduced, difference {difference:.2g}", is_error=as_json)


def score_model(predictor: mops.Predictor, entries: Mapping[str, TaskEntry]) -> RunScores:
    config = predictor.bundle.config
    tasks = {name: predictor.bundle.layout.tasks[name] for name in entries}
    shared = shared_files(entries)
    splits = {
        name: read_task(entries[name], task, SPLITS, shared.get(name))[1]
        for name, task in tasks.items()
    }
    scores: dict[str, Any] = {name: {} for name in entries}
    answered = answer_dataset(predictor, Dataset(tasks, splits, {}), config.get("seed", 0))
    with ProgressBar("scoring", total=sum(map(len, splits.values()))) as bar:
        for name, split, rows, answers in answered:
            scores[name] |= judge(answers, rows, split)
            bar.show(advance=1, facts=f"{name} {split}")
    untrained = [name for name in config.get("untrained", ()) if name in entries]
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


def find_entries(bundle: Loaded, data: str | None, tasks: list[str] | None) -> dict[str, TaskEntry]:
    """The named tasks with the files of the bundle, or with those in the folder `data`.

    A bundle of a stranger may name any file. So without `data` only what training read is read.
    """
    known = bundle.entries if data is None else find_entries_in(data, bundle.entries)
    chosen: dict[str, TaskEntry] = choose_tasks(known, tasks)
    for name, entry in chosen.items():
        for problem in file_problems(entry) if data else strange_files(bundle, name, entry):
            raise DataError(
                f"task {name!r}: {problem}; pass the folder of the data with --data DIR"
            )
    return chosen


def file_problems(entry: TaskEntry) -> Iterator[str]:
    for file in missing_files(entry):
        yield f"{file} does not exist any more"


def strange_files(bundle: Loaded, name: str, entry: TaskEntry) -> Iterator[str]:
    """Files that are not those of the training: nothing of them is shown."""
    facts = bundle.config.get("data", {}).get(name, {}).values()
    digests = {digest for split in facts for digest in split["sha256"]}
    sizes = {size for split in facts for size in split.get("bytes", ())}
    for file in (*entry.train_files, *filter(None, (entry.validation, entry.test))):
        if file.startswith(HUB):
            yield f"{file} is on a hub, which is not asked for what a model names"
        elif not digests:
            yield "the model records no digests of its data files"
        elif not Path(file).is_file():
            yield f"{file} does not exist any more"
        elif not is_one_of(Path(file), digests, sizes):
            yield f"{file} is not the file that the model was trained on"


def is_one_of(file: Path, digests: Collection[str], sizes: Collection[int]) -> bool:
    """Whether a file has one of these digests; models of older versions record no sizes.

    No more is read than the system says that there is: some of its own files never end.
    """
    size = file.stat().st_size
    return (not sizes or size in sizes) and file_digest(file, size) in digests


def find_entries_in(folder: str, known: Mapping[str, TaskEntry]) -> dict[str, TaskEntry]:
    """Files of the same names; if they do not all exist, the folder is read like a new one."""
    moved = {}
    for name, entry in known.items():
        files = {split: str(Path(folder, Path(file).name)) for split, file in entry.files().items()}
        moved[name] = entry.model_copy(update=files)
    if not any(map(missing_files, moved.values())):
        return moved
    common = [name for name in tasks_in(folder) if name in known]
    if not common:
        raise DataError(f"{folder} has none of the model's tasks: {', '.join(known)}")
    return dict(mops.recipe(data=folder, tasks=common).tasks)


def missing_files(entry: TaskEntry) -> list[str]:
    files = entry.files().values()
    return [file for file in files if not (file.startswith("hub:") or Path(file).is_file())]
