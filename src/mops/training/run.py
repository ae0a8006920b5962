"""A run: from a recipe to a folder with a record, predictions and a bundle."""

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from mops.config.recipe import Recipe, differing_key, to_recipe
from mops.data.dataset import SPLITS, encode_targets
from mops.data.planned import PlannedRun, planned_warnings
from mops.data.schedule import task_budgets
from mops.data.splits import HALVES, Row, cut_halves
from mops.errors import RecipeError, RunError
from mops.evaluate import evaluate
from mops.evaluate.cost import analytic_costs
from mops.files import file_digest, file_size, holds, remove_drafts, write_text
from mops.kinds.metrics import known as known_rows
from mops.predict.bundle import Bundle, Predictor, load_bundle, save_bundle, write_facts
from mops.predict.inference import Predictions
from mops.record import (
    Record,
    RunCosts,
    RunInfo,
    RunScores,
    StageTraining,
    TaskTraining,
    TrainInfo,
    read_record,
)
from mops.tables import Shown, Table, format_bytes, format_count, format_seconds
from mops.training.checkpoint import restore_best
from mops.training.distributed import process_group, world_size
from mops.training.finished import check_finished
from mops.training.folds import join_folds
from mops.training.grow import prepare_growth
from mops.training.machine import hold_folder, peak_memory, restored_threads
from mops.training.meters import make_request, measure_latency
from mops.training.prepare import Prepared, build_trainer, meta_info, prepare
from mops.training.references import below_references, measure_references
from mops.training.tracking import Label, Tell, Watcher, final_scores
from mops.training.trainer import Trainer
from mops.yaml_io import read_yaml

Answering = Callable[[Bundle, str], evaluate.Answerer]  # (bundle, device) -> who answers with it
Answered = Mapping[str, tuple[Sequence[Row], Predictions]]  # by task
BEST_LAST = "the best evaluation is the last one: a larger budget may give a better model"
BEST_FIRST = (
    "the best evaluation is the first one: the learning rate is too high, or the data are too few"
)


@dataclass(frozen=True, repr=False)
class Run(Shown):
    """A finished run: its folder and its record."""

    folder: Path
    record: Record
    was_finished: bool = False

    @property
    def scores(self) -> RunScores:
        return self.record.scores

    @property
    def model(self) -> Path:
        """The folder of the bundle."""
        return self.folder / "model"

    @property
    def parts(self) -> Sequence[str | Table]:
        said = (f"warning: {text}" for text in self.record.warnings)
        return [*self.facts, *said, f"model: {self.model}"]

    @property
    def facts(self) -> Sequence[str | Table]:
        """The scores and what they took."""
        info, costs, title = self.record.train_info, self.record.costs, self.record.run_info.plan
        return [
            evaluate.run_table(title, self.scores),
            f"{info.steps} steps, {format_seconds(costs.train_seconds)} of training, "
            f"{format_count(costs.parameters)} parameters "
            f"({format_count(costs.trained_parameters)} trained), "
            f"peak memory {format_bytes(costs.peak_memory_bytes)}",
            *describe_latency(costs),
        ]


def describe_latency(costs: RunCosts) -> list[str]:
    if costs.latency_seconds is None:
        return []
    alone = (f"{task} {format_seconds(own)}" for task, own in costs.latency_by_task.items())
    all_tasks = format_seconds(costs.latency_seconds)
    return [f"latency of a row: all tasks {all_tasks}; alone: {', '.join(alone)}"]


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
    if recipe.training.folds:
        with hold_folder(folder):
            return train_folds(recipe, folder, watcher or Watcher(), label, until)
    with process_group() as group:  # the first process writes the files
        watcher = watcher if watcher and group.is_first else Watcher()
        ready = (prepare_growth if recipe.base else prepare)(recipe, watcher.phase)
        group.check_equal("the recipe, the data or the encoder", lambda: ready.key)
        found = finished_run(folder, ready) if group.is_first else None
        if group.broadcast(found is not None):
            return found or Run(folder, read_record(folder / "record.json"), was_finished=True)
        with ExitStack() as held:
            if group.is_first:
                held.enter_context(hold_folder(folder))
            watcher.phase("tokenising")
            trainer = build_trainer(folder, ready, group)
            group.check_equal("the saved state", lambda: trainer.state.step)
            if group.is_first:
                held.enter_context(begun(trainer, ready, label))
            schedule = trainer.schedule
            planned = PlannedRun(ready.recipe, ready.layout, schedule)
            doubts = ready.dataset.doubts
            watcher.planned(task_budgets(schedule), [*doubts, *planned_warnings(planned)])
            trainer.run(watcher, until)
            if not trainer.is_done:
                return Paused(trainer.state.best_score, trainer.run_seconds)
            run = conclude(ready, trainer, watcher) if group.is_first else None
        group.wait()
        return run or Run(folder, read_record(folder / "record.json"))


def train_folds(
    recipe: Recipe, folder: Path, watcher: Watcher, label: Label | None, until: float
) -> Run | Paused:
    """One training after the other, each in a folder of its own until all have finished."""
    if world_size() > 1:
        raise RecipeError("training.folds needs a single process; leave out torchrun or the folds")
    ready = (prepare_growth if recipe.base else prepare)(recipe, watcher.phase)
    if found := finished_run(folder, ready):
        return found
    begin_folder(folder, ready.recipe)
    results: list[Run | Paused] = []
    for number in range(1, (recipe.training.folds or 1) + 1):
        watcher.phase(f"fold {number} of {recipe.training.folds}")
        own = label and replace(label, name=f"{label.name}, fold {number}")
        place = folder / "state" / f"fold{number}"
        results.append(train_until(recipe.in_fold(number), place, watcher, own, until))
    runs = [result for result in results if isinstance(result, Run)]
    if paused := [result for result in results if isinstance(result, Paused)]:
        scores = [result.score for result in paused if result.score is not None]
        return Paused(fmean(scores) if scores else None, sum(one.seconds for one in paused))
    record = join_folds(folder, ready, [run.folder for run in runs], [run.record for run in runs])
    write_text(folder / "record.json", record.to_json())
    shutil.rmtree(folder / "state", ignore_errors=True)
    return Run(folder, record)


def finished_run(folder: Path, ready: Prepared) -> Run | None:
    """This very run, if it is already there; refuses a folder that holds another one."""
    if not holds(folder, "recipe.yaml", kind="run"):
        return None
    path = folder / "record.json"
    record = read_record(path) if path.is_file() else None
    there = to_recipe(read_yaml(folder / "recipe.yaml"), where=f"{folder / 'recipe.yaml'}")
    settings = there.to_data(), ready.recipe.to_data()
    is_other_data = record is not None and ready.is_other_data(vars(record.meta_info))
    refuse_other_work(folder, "run", settings, is_other_data)
    if record is None or not (folder / "model" / "config.json").is_file():
        return None
    check_finished(folder, record, ready.recipe)
    shutil.rmtree(folder / "state", ignore_errors=True)  # a kill may have left it
    return Run(folder, record, was_finished=True)


def refuse_other_work(
    folder: Path, kind: str, settings: tuple[dict[str, Any], dict[str, Any]], is_other_data: bool
) -> None:
    """Refuse a folder with other settings (there, here), or finished on other data."""
    if difference := differing_key(*settings):
        raise RecipeError(
            f"{folder} holds a {kind} with other settings ({difference}); "
            "name another folder as `out`, or delete this one"
        )
    if is_other_data:
        raise RecipeError(
            f"{folder} holds this {kind}, finished, but the data or the encoder (weights, "
            "tokenizer or config) have changed since; name another folder as `out`"
        )


@contextmanager
def begun(trainer: Trainer, ready: Prepared, label: Label | None) -> Iterator[None]:
    """The folder of a run while it is trained: its recipe, its curve and its trackers."""
    folder, recipe = trainer.folder, ready.recipe
    if finished_run(folder, ready):  # it was not when this process looked for the first time
        raise RunError(f"another process has just finished {folder}; give the command again")
    begin_folder(folder, recipe)
    with trainer.curve.tracked(recipe, folder, trainer.state.curve_bytes, label):
        yield


def begin_folder(folder: Path, recipe: Recipe) -> None:
    remove_drafts(folder)
    write_text(folder / "recipe.yaml", recipe.to_yaml())
    started = folder / "state" / "started"
    if not started.is_file():
        write_text(started, datetime.now(UTC).isoformat(timespec="seconds"))


def conclude(
    ready: Prepared, trainer: Trainer, watcher: Watcher, answering: Answering = Predictor
) -> Run:
    """From the best state of a training that is over to a finished run."""
    trainer.restore_best()
    folder, source, tasks = trainer.folder / "model", ready.source, ready.dataset.tasks
    facts: dict[str, Any] = {"encoder_name": source.name, "encoder_sha256": source.digest}
    known = ready.base.config if ready.base else {}  # answers that did not change: facts remain
    facts |= {"seed": ready.recipe.training.seed, "encoder_licence": source.licence}
    facts |= {"base_sha256": ready.base.digest} if ready.base else {}
    facts["data"] = {**known.get("data", {}), **data_facts(ready)}
    save_bundle(folder, trainer.network, source.tokenizer, ready.entries, facts)
    watcher.phase("scoring")
    bundle = load_bundle(folder)  # judged as a user will load it
    by_task, warnings = judge_run(ready, trainer, bundle, answering, watcher.phase)
    # Tasks without a step before the best state, which is the bundle, or without a weight.
    taken = task_budgets(trainer.schedule, trainer.state.best_step or trainer.state.step)
    untrained = [n for n, own in taken.items() if not own.batches or not trainer.training.weight(n)]
    scores = evaluate.score_table(tasks, by_task, untrained)
    facts["scores"] = {**known.get("scores", {}), **by_task}
    facts["main_scores"] = {**known.get("main_scores", {}), **scores.main}
    facts["untrained"] = [*known.get("untrained", ()), *untrained]
    warnings += training_warnings(ready, trainer, untrained)
    watcher.phase("comparing with the untrained encoder")
    measured: dict[str, Any] = {"peak_memory_bytes": peak_memory()}  # without what follows
    references = measure_references(ready)
    warnings += below_references(references, scores)
    training = {"steps": trainer.state.step, "seconds": trainer.state.seconds}
    facts |= {"warnings": warnings, "training": training}
    write_facts(folder, trainer.network.layout, facts)
    if answering is Predictor:  # not one of many networks on one encoder
        row = make_request(ready.dataset, 1)
        measured |= measure_latency(Predictor(bundle, ready.device), row, ready.device)
    record = build_record(ready, trainer, scores, warnings, measured)
    record = replace(record, references=references)
    write_text(trainer.folder / "record.json", record.to_json())
    trainer.curve.end(final_scores(scores))
    shutil.rmtree(trainer.folder / "state", ignore_errors=True)
    return Run(trainer.folder, record)


def data_facts(ready: Prepared) -> dict[str, dict[str, Any]]:
    """Task -> split -> names, digests and sizes of its files, and the rows that can be used."""
    facts: dict[str, dict[str, Any]] = {}
    digests = ready.dataset.digests
    for name, splits in ready.dataset.splits.items():
        files = {split: [read.source] for split, read in splits.items()}
        files["train"] = list(ready.recipe.tasks[name].train_files)
        facts[name] = {
            split: {
                "files": [Path(file).name for file in files[split]],
                "sha256": [digests.get(file, "") for file in files[split]],
                "bytes": [file_size(file) for file in files[split]],
                "rows": len(read.good),
            }
            for split, read in splits.items()
        }
    return facts


def judge_run(
    ready: Prepared, trainer: Trainer, bundle: Bundle, answering: Answering, tell: Tell
) -> tuple[dict[str, Any], list[str]]:
    """Predictions of every split as files, their scores, and what looks wrong with them."""
    scores: dict[str, Any] = {name: {} for name in ready.dataset.tasks}
    warnings: list[str] = []
    answerer, validation = answering(bundle, ready.device), {}

    def note(name: str, split: str, rows: Sequence[Row], answers: Predictions) -> None:
        tell(f"scored {name} {split}")
        scores[name] |= evaluate.judge(answers, rows, split)
        if answers.cut_words and split in SPLITS:
            warnings.append(
                f"{name}: {answers.cut_words:,} words of the {split} rows are cut off by "
                "training.max_length; they are answered with the outside tag"
            )
        if split != "train":
            path = trainer.folder / "predictions" / f"{name}-{split}.csv"
            evaluate.write_predictions(path, rows, answers)

    for name, split, rows, answers in evaluate.answer_dataset(
        answerer, ready.dataset, ready.recipe.training.seed
    ):
        note(name, split, rows, answers)
        if split == "validation":
            validation[name] = rows, answers
            targets = encode_targets(answers.task, rows)
            known = known_rows(targets)
            warnings += evaluate.suspicious(answers.task, targets[known], answers.values[known])
    for name, answers in cross_fit(trainer, bundle, answerer, validation).items():
        note(name, "report", validation[name][0], answers)
    return scores, warnings


def cross_fit(
    trainer: Trainer, bundle: Bundle, answerer: evaluate.Answerer, validation: Answered
) -> dict[str, Predictions]:
    """The validation rows, each answered by the state that the other half of them has chosen.

    So no row judges a state, or a threshold, that was chosen on it. Mostly all choose the same
    state, whose predictions are known: those of the bundle.
    """
    best, joined = trainer.state.best, {n: answers for n, (_, answers) in validation.items()}
    for half, chooser in zip(HALVES, reversed(HALVES), strict=True):
        is_same = chooser in best and best[chooser][1] == trainer.state.best_step
        if chooser not in best or (is_same and not bundle.network.thresholds):
            continue
        restore_best(trainer.folder, chooser, best[chooser][1], bundle.network)
        chosen = {
            name: np.flatnonzero(np.array(cut_halves(rows)) == half)
            for name, (rows, _) in validation.items()
        }
        texts = {n: [validation[n][0][int(row)].texts for row in own] for n, own in chosen.items()}
        for name, answers in answerer.predict_tasks(texts).items():
            joined[name] = joined[name].with_rows(chosen[name], answers)
    return joined


def build_record(
    ready: Prepared,
    trainer: Trainer,
    scores: RunScores,
    warnings: Sequence[str],
    measured: Mapping[str, Any],
) -> Record:
    recipe, training = ready.recipe, train_info(trainer)
    started = trainer.folder / "state" / "started"
    return Record(
        run_info=RunInfo(
            plan=recipe.sharing_plan().name,
            tasks=tuple(recipe.tasks),
            encoder=recipe.encoder,
            seed=recipe.training.seed,
            recipe=recipe.to_data(),
            started=started.read_text("utf-8", "replace") if started.is_file() else "",
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
        ),
        train_info=training,
        scores=scores,
        costs=run_costs(trainer, training, measured),
        warnings=tuple(warnings),
        meta_info=meta_info(ready),
        predictions_sha256=evaluate.digest_predictions(trainer.folder),
        model_sha256=file_digest(trainer.folder / "model" / "model.safetensors"),
    )


def training_warnings(ready: Prepared, trainer: Trainer, untrained: Sequence[str]) -> list[str]:
    """What was planned, and how the training went, as far as a reader should be warned."""
    training = train_info(trainer)
    planned = PlannedRun(ready.recipe, ready.layout, trainer.schedule)
    return [
        *ready.dataset.doubts,
        *(f"{name}: no training step was taken for it" for name in untrained),
        *planned_warnings(planned, untrained),
        *([BEST_LAST] if training.is_best_last else ()),
        *([BEST_FIRST] if training.is_best_first else ()),
    ]


def train_info(trainer: Trainer) -> TrainInfo:
    now, schedule = trainer.state, trainer.schedule
    planned, taken = task_budgets(schedule), task_budgets(schedule, now.step)
    return TrainInfo(
        steps=now.step,
        planned_steps=len(schedule),
        steps_per_epoch=schedule.steps_per_epoch,
        epochs=now.step / schedule.steps_per_epoch,
        stopped_early=now.is_stopped,
        best_step=now.best_step,
        best_score=now.best_score,
        evaluations=now.evaluations,
        last_change=now.last_change,
        train_seconds=now.seconds,
        run_seconds=trainer.run_seconds,
        batched=now.batched,
        processes=now.processes,
        step_seconds_median=median(now.step_seconds or [0.0]),
        tokens=now.tokens,
        frozen_seconds=now.frozen_seconds,
        frozen_sequences={"computed": now.frozen_computed, "found": now.frozen_found},
        loss_weights=trainer.learner.weighting.weights(),
        gradient_shares={task: float(np.mean(shares)) for task, shares in now.shares.items()},
        tasks={
            name: TaskTraining(**asdict(share), planned_batches=planned[name].batches)
            for name, share in taken.items()
        },
        stages=tuple(
            StageTraining(
                steps=max(0, min(now.step, stage.stop) - stage.first),
                planned_steps=len(stage),
                frozen=stage.is_frozen,
                schedule=stage.training.schedule,
            )
            for stage in schedule.stages
        ),
    )


def run_costs(trainer: Trainer, training: TrainInfo, measured: Mapping[str, Any]) -> RunCosts:
    """Weights and training state apart; time of training steps only."""
    tables = {name: data.tokens for name, data in trainer.objective.data.items()}
    joules = trainer.state.joules
    return RunCosts(
        **analytic_costs(trainer.network.layout, trainer.schedule, tables),
        **measured,
        train_seconds=training.train_seconds,
        train_joules=None if math.isnan(joules) else joules,
        step_seconds_median=training.step_seconds_median,
        bundle_bytes=sum(file.stat().st_size for file in (trainer.folder / "model").iterdir()),
    )
