"""A run: from a recipe to a folder with a record, predictions and a bundle."""

import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mops.config.recipe import Recipe, differing_key
from mops.data.schedule import schedule_warnings, task_budgets
from mops.errors import RecipeError
from mops.files import holds, remove_drafts, write_text
from mops.model.network import Network
from mops.model.pretrained import load_pretrained
from mops.predict.bundle import Predictor
from mops.record import Record, RunScores, read_record
from mops.training.checkpoint import TrainerState
from mops.training.distributed import ALONE, ProcessGroup, process_group
from mops.training.finish import Answering, finish
from mops.training.machine import restored_threads
from mops.training.prepare import Prepared, build_objective, prepare
from mops.training.step import build_learner
from mops.training.tracking import Curve, Label, Watcher, final_scores, label_of
from mops.training.trainer import Objective, Trainer
from mops.yaml_io import read_yaml


@dataclass(frozen=True)
class Run:
    """A finished run: its folder and its record."""

    folder: Path
    record: Record
    was_finished: bool = False

    @property
    def scores(self) -> RunScores:
        return self.record.scores


@dataclass(frozen=True)
class Paused:
    """A run that was trained to a fraction of its steps."""

    score: float | None  # the best on the validation rows so far
    seconds: float  # of all work so far


def train(
    recipe: Recipe, out: str | Path, watcher: Watcher | None = None, label: Label | None = None
) -> Run:
    """Train what the recipe says into the folder `out`; resumes an interrupted run.

    `label` is the run's name in trackers; by default that of its folder.
    """
    run = train_until(recipe, Path(out), watcher, label)
    assert isinstance(run, Run)
    return run


@restored_threads()
def train_until(
    recipe: Recipe,
    folder: Path,
    watcher: Watcher | None = None,
    label: Label | None = None,
    until: float = 1.0,
) -> Run | Paused:
    """`train`, but at most to a fraction of the steps; the next call continues."""
    with process_group() as group:  # the first process writes the files
        watcher = watcher if watcher and group.is_first else Watcher()
        ready = prepare(recipe, watcher.phase)
        group.check_equal("the recipe, the data or the encoder", lambda: ready.key)
        if group.broadcast(group.is_first and is_finished(folder, ready)):
            return finished_run(folder)
        watcher.phase("tokenising")
        trainer = build_trainer(folder, ready, group)
        group.check_equal("the saved state", lambda: trainer.state.step)
        if group.is_first:
            begin_folder(folder, ready.recipe)
        schedule = trainer.schedule
        warnings = schedule_warnings(schedule, ready.recipe.training)
        watcher.planned(task_budgets(schedule), list(warnings.values()))
        with tracked(trainer, ready.recipe, label or label_of(folder)):
            trainer.run(watcher, until)
            if not trainer.is_done:
                return Paused(trainer.state.best_score, trainer.run_seconds)
            run = conclude(ready, trainer, watcher) if group.is_first else None
        group.wait()
        return run or Run(folder, read_record(folder / "record.json"))


def conclude(
    ready: Prepared, trainer: Trainer, watcher: Watcher, answering: Answering = Predictor
) -> Run:
    """From the best state of a training that is over to a finished run."""
    trainer.restore_best()
    record = finish(ready, trainer, watcher.phase, answering)
    trainer.curve.end(final_scores(record.scores))
    shutil.rmtree(trainer.folder / "state", ignore_errors=True)
    return Run(trainer.folder, record)


def tracked(trainer: Trainer, recipe: Recipe, label: Label) -> AbstractContextManager[None]:
    """Send the curve to the recipe's trackers, from the first process."""
    if not trainer.learner.group.is_first:
        return nullcontext()
    state = trainer.folder / "state"
    return trainer.curve.tracked(recipe, label, state, trainer.state.curve_bytes)


def build_trainer(folder: Path, ready: Prepared, group: ProcessGroup = ALONE) -> Trainer:
    """The network with pretrained weights, or with those of an interrupted run."""
    training = ready.recipe.training
    dropout, head_dropout = training.dropout, training.head_dropout
    network = Network(ready.layout, dropout=dropout, head_dropout=head_dropout, seed=training.seed)
    load_pretrained(network, ready.source)
    network.to(ready.device)
    if training.torch_compile:  # blocks whose only varying size is the number of tokens
        for owner, module in network.bank.items():
            if owner.startswith("feedforward"):
                module.compile(dynamic=True)
    return start_trainer(folder, ready, network, build_objective(ready, group), group)


def start_trainer(
    folder: Path,
    ready: Prepared,
    network: Network,
    objective: Objective,
    group: ProcessGroup = ALONE,
    curve: str = "curve.jsonl",
) -> Trainer:
    """A run at its first step, or where it was interrupted."""
    training = ready.recipe.training
    trainer = Trainer(
        folder=folder,
        learner=build_learner(network, objective.schedule, training, group),
        objective=objective,
        training=training,
        curve=Curve(folder / curve),
        key=ready.key,
        state=TrainerState(processes=group.world),
    )
    trainer.resume()
    if trainer.state.processes != group.world:  # the rows of a step depend on their number
        raise RecipeError(
            f"{folder} was trained by {trainer.state.processes} process(es) up to step "
            f"{trainer.state.step}, now there are {group.world}; start as many "
            "(torchrun --nproc-per-node), or name another folder with --out"
        )
    return trainer


# ------------------------------------------------------------------ the folder


def is_finished(folder: Path, ready: Prepared) -> bool:
    """Whether this very run is already there; refuses a folder that holds another one."""
    if not holds(folder, "recipe.yaml", kind="run"):
        return False
    path = folder / "record.json"
    meta_info = asdict(read_record(path).meta_info) if path.is_file() else None
    settings = read_yaml(folder / "recipe.yaml"), ready.recipe.to_data()
    refuse_other_work(folder, "run", settings, meta_info, ready)
    return meta_info is not None and (folder / "model" / "config.json").is_file()


def refuse_other_work(
    folder: Path,
    kind: str,
    settings: tuple[dict[str, Any], dict[str, Any]],
    meta_info: Mapping[str, Any] | None,
    ready: Prepared,
) -> None:
    """Refuse a folder with other settings (there, here), or finished on other data."""
    if difference := differing_key(*settings):
        raise RecipeError(
            f"{folder} holds a {kind} with other settings ({difference}); "
            "name another folder with --out, or delete this one"
        )
    if meta_info and any(meta_info[key] != digest for key, digest in ready.digests.items()):
        raise RecipeError(
            f"{folder} holds this {kind}, finished, but the data or the encoder's weights have "
            "changed since; name another folder with --out"
        )


def finished_run(folder: Path) -> Run:
    """The run that is there; a kill may have left its state."""
    shutil.rmtree(folder / "state", ignore_errors=True)
    return Run(folder, read_record(folder / "record.json"), was_finished=True)


def begin_folder(folder: Path, recipe: Recipe) -> None:
    remove_drafts(folder)
    write_text(folder / "recipe.yaml", recipe.to_yaml())
    started = folder / "state" / "started"
    if not started.is_file():
        write_text(started, datetime.now(UTC).isoformat(timespec="seconds"))
