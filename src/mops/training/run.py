"""A run: from a recipe to a folder with a record, predictions and a bundle."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mops.config.recipe import Recipe, differing_key
from mops.data.batches import TaskData
from mops.data.schedule import plan_steps
from mops.errors import RecipeError
from mops.files import holds, remove_drafts, write_text
from mops.model.network import Network
from mops.model.pretrained import load_pretrained
from mops.record import Record, RunScores, read_record
from mops.training.checkpoint import Progress, load_best, load_state
from mops.training.distributed import ALONE, Together, gathered
from mops.training.finish import Answering, answer_with, finish
from mops.training.gradients import build_gradients
from mops.training.loss_weights import build_weighting
from mops.training.optim import enter, keep_start
from mops.training.prepare import Prepared, batch_maker, prepare, selection_data, training_data
from mops.training.tracking import Label, final_scores, label_of
from mops.training.trainer import Loop, Scores, Silent, Watcher, selection_scores
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


def train(
    recipe: Recipe,
    out: str | Path,
    watcher: Watcher | None = None,
    label: Label | None = None,
) -> Run:
    """Train what the recipe says into the folder `out`; goes on where an interrupted run was.

    `label` is what trackers call the run; else the name of its folder.
    """
    folder = Path(out)
    with gathered() as together:
        heard = watcher if watcher and together.is_first else Silent()
        return train_together(recipe, folder, heard, together, label or label_of(folder))


def train_together(
    recipe: Recipe, folder: Path, watcher: Watcher, together: Together, label: Label
) -> Run:
    """One process, or one of several; the first one writes the files."""
    ready = prepare(recipe, watcher.phase)
    together.agree("the recipe, the data or the encoder", lambda: ready.key)
    if together.told(together.is_first and is_finished(folder, ready)):
        if together.is_first:  # killed just before it was removed
            shutil.rmtree(folder / "state", ignore_errors=True)
        return Run(folder, read_record(folder / "record.json"), was_finished=True)
    watcher.phase("tokenising")
    loop = build_loop(folder, ready, together)
    together.agree("the saved state", lambda: loop.progress.step)
    if together.is_first:
        begin_folder(folder, ready.recipe)
    with tracked(loop, ready.recipe, label):
        loop.run(watcher)
        run = conclude(ready, loop, watcher) if together.is_first else None
    together.wait()
    return run or Run(folder, read_record(folder / "record.json"))


def conclude(
    ready: Prepared, loop: Loop, watcher: Watcher, answering: Answering = answer_with
) -> Run:
    """From the best state of a training that is over to a finished run."""
    folder = loop.folder
    loop.release()
    load_best(folder / "state" / "best.safetensors", loop.network)
    record = finish(folder, ready, loop, watcher.phase, answering)
    loop.curve.audience.end(final_scores(record.scores))
    shutil.rmtree(folder / "state", ignore_errors=True)
    return Run(folder, record)


def tracked(loop: Loop, recipe: Recipe, label: Label) -> AbstractContextManager[None]:
    """The recipe's trackers hear the run, of several processes the first."""
    if not loop.together.is_first:
        return nullcontext()
    kept, state = loop.progress.curve_bytes, loop.folder / "state"
    return loop.curve.heard(recipe, label, kept_bytes=kept, state=state)


def build_loop(folder: Path, ready: Prepared, together: Together = ALONE) -> Loop:
    """The network with pretrained weights, or with those of an interrupted run."""
    training = ready.recipe.training
    network = Network(
        ready.layout,
        dropout=training.dropout,
        head_dropout=training.head_dropout,
        seed=training.seed,
    )
    load_pretrained(network, ready.source)
    network.to(ready.device)
    if training.torch_compile:
        compile_blocks(network)
    data, selection = training_data(ready), selection_data(ready)
    return assemble(folder, ready, network, data, selection, together=together)


def assemble(
    folder: Path,
    ready: Prepared,
    network: Network,
    data: Mapping[str, TaskData],
    selection: Mapping[str, TaskData],
    scores: Scores = selection_scores,
    together: Together = ALONE,
) -> Loop:
    """The loop of a network, at its first step or where it was interrupted."""
    training = ready.recipe.training
    sizes = {name: len(rows) for name, rows in data.items()}
    schedule = plan_steps(sizes, together.joined(training))
    weighting = build_weighting(training, network.layout.tasks, schedule, ready.device)
    for stage in reversed(schedule.stages):  # whatever is wrong with a later stage is said now
        optimiser = enter(network, stage, weighting)
    loop = Loop(
        folder=folder,
        network=network,
        optimiser=optimiser,
        schedule=schedule,
        data=data,
        take=batch_maker(ready, data),
        selection=selection,
        scores=scores,
        training=training,
        key=ready.key,
        start=keep_start(network),
        weighting=weighting,
        gradients=build_gradients(training.gradients),
        together=together,
        progress=Progress(processes=together.world),
    )
    state = folder / "state" / "state.safetensors"
    if state.is_file():
        go_on(loop, state)
    return loop


def go_on(loop: Loop, state: Path) -> None:
    """Put the loop where it was interrupted."""
    loop.progress = load_state(state, loop.network, loop.optimiser, loop.key, loop.parts)
    check_processes(loop.folder, loop.progress, loop.together)
    moments = loop.optimiser.state
    loop.optimiser = enter(loop.network, loop.stage, loop.weighting)
    loop.optimiser.state.update(moments)


def check_processes(folder: Path, progress: Progress, together: Together) -> None:
    """The rows of a step follow from their number."""
    if progress.processes != together.world:
        raise RecipeError(
            f"{folder} was trained by {progress.processes} process(es) up to step {progress.step}, "
            f"now there are {together.world}; start as many (torchrun --nproc-per-node), or name "
            "another folder with --out"
        )


def compile_blocks(network: Network) -> None:
    """Compile the blocks whose only varying size is the number of tokens."""
    for owner, module in network.bank.items():
        if owner.startswith("feedforward"):
            module.compile(dynamic=True)


# ------------------------------------------------------------------ the folder


def is_finished(folder: Path, ready: Prepared) -> bool:
    """Whether this very run is already there; refuses a folder that holds another one."""
    if not holds(folder, "recipe.yaml", kind="run"):
        return False
    difference = differing_key(read_yaml(folder / "recipe.yaml"), ready.recipe.to_data())
    if difference:
        raise RecipeError(
            f"{folder} holds a run with another recipe ({difference}); "
            "name another folder with --out, or delete this one"
        )
    path = folder / "record.json"
    if not path.is_file():
        return False
    facts = read_record(path).meta_info
    made_of = (facts.data_sha256, facts.encoder_sha256)
    if made_of != (ready.dataset.digests, ready.source.digest):
        raise RecipeError(
            f"{folder} holds this run, finished, but the data or the encoder's weights have "
            "changed since; name another folder with --out"
        )
    return (folder / "model" / "config.json").is_file()


def begin_folder(folder: Path, recipe: Recipe) -> None:
    remove_drafts(folder)
    write_text(folder / "recipe.yaml", recipe.to_yaml())
    started = folder / "state" / "started"
    if not started.is_file():
        write_text(started, datetime.now(UTC).isoformat(timespec="seconds"))
