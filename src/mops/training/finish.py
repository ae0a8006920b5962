"""The end of a run: the bundle is written, read back and judged; the record says it all."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from statistics import median
from typing import Any

import numpy as np

from mops.data.dataset import encode_targets
from mops.data.examples import HALVES, Row, cut_halves
from mops.data.schedule import schedule_warnings, task_budgets
from mops.evaluate import evaluate
from mops.evaluate.cost import analytic_costs
from mops.evaluate.evaluate import Answerer
from mops.files import write_text
from mops.predict.bundle import Bundle, load_bundle, save_bundle, write_facts
from mops.predict.inference import Predictions
from mops.record import Record, RunCosts, RunInfo, StageTraining, TaskTraining, TrainInfo
from mops.training.checkpoint import restore_best
from mops.training.machine import peak_memory
from mops.training.prepare import Prepared, meta_info
from mops.training.tracking import Tell
from mops.training.trainer import Trainer

Answering = Callable[[Bundle, str], Answerer]  # (bundle, device) -> who answers with it
OTHER = dict(zip(HALVES, reversed(HALVES), strict=True))


def finish(ready: Prepared, trainer: Trainer, tell: Tell, answering: Answering) -> Record:
    """Judge the bundle as a user will load it, and write everything down."""
    recipe, dataset, source, folder = ready.recipe, ready.dataset, ready.source, trainer.folder
    facts: dict[str, Any] = {
        "encoder_name": source.name,
        "encoder_sha256": source.digest,
        "seed": recipe.training.seed,
    }
    save_bundle(folder / "model", trainer.network, source.tokenizer, recipe.tasks, facts)
    bundle = load_bundle(folder / "model")
    tell("scoring")
    scores, warnings = judge_run(ready, trainer, bundle, answering, tell)
    # Tasks without a step before the best state, which is the bundle, or without a weight.
    taken = task_budgets(trainer.schedule, trainer.state.best_step or trainer.state.step)
    untrained = [n for n, own in taken.items() if not own.batches or not trainer.training.weight(n)]
    warnings += [f"{name}: no training step was taken for it" for name in untrained]
    planned = schedule_warnings(trainer.schedule, recipe.training)
    warnings += [doubt for name, doubt in planned.items() if name not in untrained]
    training = train_info(trainer)
    warnings += convergence_warnings(training)
    facts["scores"], facts["untrained"] = scores, untrained
    facts["main_scores"] = {name: task.score_name for name, task in dataset.tasks.items()}
    write_facts(folder / "model", trainer.network.layout, facts)
    record = Record(
        run_info=run_info(ready, trainer),
        train_info=training,
        scores=evaluate.score_table(dataset.tasks, scores, untrained),
        costs=run_costs(trainer, training),
        warnings=tuple(warnings),
        meta_info=meta_info(ready),
    )
    write_text(folder / "record.json", record.to_json())
    return record


def convergence_warnings(training: TrainInfo) -> Iterator[str]:
    if training.is_best_last:
        yield "the best evaluation is the last one: a larger budget may give a better model"
    if training.is_best_first:
        yield (
            "the best evaluation is the first one: the learning rate is too high, or the data are "
            "too few"
        )


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
            known = ~np.isnan(targets)
            warnings += evaluate.suspicious(answers.task, targets[known], answers.values[known])
    for name, answers in cross_fit(trainer, bundle, answerer, validation).items():
        note(name, "report", validation[name][0], answers)
    return scores, warnings


Answered = Mapping[str, tuple[Sequence[Row], Predictions]]  # by task


def cross_fit(
    trainer: Trainer, bundle: Bundle, answerer: Answerer, validation: Answered
) -> dict[str, Predictions]:
    """The validation rows, each answered by the state that the other half of them has chosen.

    So no row judges a state that was chosen on it. Mostly all choose the same state, whose
    predictions are known: those of the bundle.
    """
    best, joined = trainer.state.best, {n: answers for n, (_, answers) in validation.items()}
    for half, chooser in OTHER.items():
        if chooser not in best or best[chooser][1] == trainer.state.best_step:
            continue
        restore_best(trainer.folder, chooser, bundle.network)
        chosen = {
            name: np.flatnonzero(np.array(cut_halves(rows)) == half)
            for name, (rows, _) in validation.items()
        }
        texts = {n: [validation[n][0][int(row)].texts for row in own] for n, own in chosen.items()}
        for name, answers in answerer.predict_tasks(texts).items():
            joined[name] = joined[name].with_rows(chosen[name], answers)
    return joined


def run_info(ready: Prepared, trainer: Trainer) -> RunInfo:
    recipe, started = ready.recipe, trainer.folder / "state" / "started"
    return RunInfo(
        plan=recipe.sharing_plan().name,
        tasks=tuple(recipe.tasks),
        encoder=recipe.encoder,
        seed=recipe.training.seed,
        recipe=recipe.to_data(),
        started=started.read_text("utf-8") if started.is_file() else "",
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
    )


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


def run_costs(trainer: Trainer, training: TrainInfo) -> RunCosts:
    """Weights and training state apart; time of training steps only."""
    tables = {name: data.tokens for name, data in trainer.objective.data.items()}
    return RunCosts(
        **analytic_costs(trainer.network.layout, trainer.schedule, tables),
        train_seconds=training.train_seconds,
        step_seconds_median=training.step_seconds_median,
        peak_memory_bytes=peak_memory(),
        bundle_bytes=sum(file.stat().st_size for file in (trainer.folder / "model").iterdir()),
    )
