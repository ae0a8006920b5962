"""The folds of a run as one result: every row judged once, by a network that did not see it.

To a survey this is one run of its seed. The folds are no independent runs, because they share most
of their training rows, so their spread is no noise of runs.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from statistics import fmean

import numpy as np

from mops.data.dataset import read_dataset
from mops.evaluate.evaluate import (
    digest_predictions,
    read_columns,
    read_predictions,
    score_table,
    write_columns,
)
from mops.evaluate.metrics import score, standard_error
from mops.record import Metrics, Record
from mops.tasks import Task
from mops.training.prepare import Prepared

SPLITS = ("validation", "report")  # of which each fold has its own part
COPIED = ("model", "predictions", "curve.jsonl")  # of the first fold


def join_folds(
    folder: Path, ready: Prepared, parts: Sequence[Path], records: Sequence[Record]
) -> Record:
    """The record of all folds, and their predictions in the order of the file.

    The model is that of the first fold, and so are its costs and its scores on training and test.
    """
    first, tasks = records[0], ready.dataset.tasks
    for name in COPIED:
        copy = shutil.copytree if (parts[0] / name).is_dir() else shutil.copy
        shutil.rmtree(folder / name, ignore_errors=True)
        copy(parts[0] / name, folder / name)
    scores = {name: dict(own) for name, own in first.scores.tasks.items()}
    for name, places in row_places(ready).items():
        for split in SPLITS:
            file = f"predictions/{name}-{split}.csv"
            columns = [read_columns(part / file) for part in parts]
            joined = {key: np.concatenate([own[key] for own in columns]) for key in columns[0]}
            write_columns(folder / file, {key: own[places] for key, own in joined.items()})
            scores[name][split] = judge_file(folder / file, tasks[name])
    untrained = dict.fromkeys(chain.from_iterable(one.scores.untrained for one in records))
    warnings = dict.fromkeys(chain.from_iterable(one.warnings for one in records))
    note = f"{len(parts)} folds: each row is judged by a network that did not see it; the model is "
    note += "that of the first fold, and was trained without its rows"
    now, infos = datetime.now(UTC).isoformat(timespec="seconds"), [r.train_info for r in records]
    best = [info.best_score for info in infos if info.best_score is not None]
    seconds = sum(info.run_seconds for info in infos)
    return replace(
        first,
        run_info=replace(first.run_info, recipe=ready.recipe.to_data(), finished=now),
        train_info=replace(infos[0], run_seconds=seconds, best_score=fmean(best) if best else None),
        scores=score_table(tasks, scores, tuple(untrained)),
        warnings=tuple(warnings),
        predictions_sha256=digest_predictions(folder),
        meta_info=replace(first.meta_info, data_notes=(note, *first.meta_info.data_notes)),
    )


def row_places(ready: Prepared) -> dict[str, list[int]]:
    """Task -> the order in which the rows of all folds are those of the file."""
    recipe, count = ready.recipe, ready.recipe.training.folds or 1
    splits = [read_dataset(recipe.in_fold(n + 1), ("validation",)).splits for n in range(count)]
    places = {}
    for name in ready.dataset.tasks:
        rows = chain.from_iterable(own[name]["validation"].rows for own in splits)
        lines = [int(row.where.rpartition(":")[2]) for row in rows]
        places[name] = np.argsort(lines).tolist()
    return places


def judge_file(path: Path, task: Task) -> Metrics:
    rows = read_predictions(path, task)
    pair = rows.targets, rows.values
    return {**score(task, *pair), "stderr": standard_error(task, *pair)}
