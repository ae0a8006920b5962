"""The trials of a made survey: records, curves and predictions of a candidate of given skill."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from survey_data import HOSTILE, write_csv

from mops.config.recipe import Recipe
from mops.data.dataset import Dataset, encode_targets
from mops.data.splits import Row
from mops.evaluate.evaluate import overall_of, score_table
from mops.evaluate.metrics import score
from mops.model.sources import find_encoder
from mops.plans.layout import Layout, lay_out
from mops.plans.shapes import EncoderShape
from mops.record import Record
from mops.surveys.ledger import Trial
from mops.tasks import Task
from surveying import Skill, made_meta, made_record

STEPS, EVALUATIONS = 100, 4
MACHINE: dict[str, Any] = {
    "python": "3.11.7",
    "packages": {"mops": "0.1.0", "torch": "2.13.0+cpu", "numpy": "2.4.6"},
    "platform": "Linux-6.1-x86_64",
    "processor": "Abacus 2000",
    "command": "mops survey",
    "device": "cpu",
    "threads": 1,
}


@dataclass(frozen=True)
class Asked:
    """The rows of one file that judges, and what is right."""

    task: Task
    split: str
    rows: Sequence[Row]

    @cached_property
    def targets(self) -> Any:
        return encode_targets(self.task, self.rows)

    @cached_property
    def hardness(self) -> Any:
        """The same for everybody; the hostile rows nobody gets right."""
        found = np.random.default_rng(len(self.task.name)).random(len(self.rows))
        found[: len(HOSTILE)] = 2.0
        return found


@dataclass(frozen=True)
class World:
    """What all trials of a survey have in common."""

    folder: Path
    dataset: Dataset
    shape: EncoderShape
    asked: Sequence[Asked]

    def layout(self, recipe: Recipe) -> Layout:
        tasks = dict(self.dataset.tasks)
        reading = recipe.training.reading(tasks)
        return lay_out(recipe.sharing_plan(), list(tasks.values()), self.shape, reading)


@dataclass(frozen=True)
class Maker:
    """Writes the trials of one candidate."""

    world: World
    layout: Layout
    skill: float  # share of right classes; likewise the closeness of similarities
    draw: int  # what makes its answers its own
    meta: Mapping[str, Any]
    warnings: tuple[str, ...]

    def write(self, trial: Trial) -> Path:
        """A finished run, as training would have left it; no model."""
        run = self.world.folder / "trials" / trial.id
        tasks = self.world.dataset.tasks
        scores: dict[str, Any] = {name: {} for name in tasks}
        for asked in self.world.asked:
            name = asked.task.name
            columns, numbers = self.answers(asked, trial.seed)
            path = run / "predictions" / f"{name}-{asked.split}.csv"
            write_csv(path, list(columns), list(zip(*columns.values(), strict=True)))
            scores[name][asked.split] = score(asked.task, asked.targets, numbers)
            scores[name].setdefault("validation", scores[name][asked.split])
        record = self.record(trial, scores)
        (run / "record.json").write_text(record.to_json(), "utf-8")
        recipe = json.dumps(trial.recipe.to_data(), indent=1)  # JSON is YAML, and quick
        (run / "recipe.yaml").write_text(recipe, "utf-8")
        lines = [json.dumps(line) for line in curve(tasks, scores)]
        (run / "curve.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
        return run

    def answers(self, asked: Asked, seed: int) -> tuple[dict[str, Sequence[Any]], Any]:
        """The columns of a file of predictions, and the answers as numbers."""
        task, targets, count = asked.task, asked.targets, len(asked.rows)
        own = np.random.default_rng([self.draw, seed, len(task.name)])
        hard = asked.hardness + 0.1 * own.normal(size=count)
        more: dict[str, Sequence[Any]] = {}
        if not task.answer.has_labels:
            numbers = targets + 3 * (1 - self.skill) * own.normal(size=count) * (1 + hard)
            numbers = numbers.clip(*task.range).round(6)
            losses = (numbers - targets) ** 2
            words = [repr(float(number)) for number in numbers]
        else:
            is_right, others = hard < self.skill, len(task.labels) - 1
            numbers = np.where(is_right, targets, (targets + 1) % (others + 1))
            sure = (1 + others * np.minimum(1, np.abs(hard - self.skill))) / (1.01 + others)
            losses = -np.log(np.where(is_right, sure, (1 - sure) / others))
            words = [task.labels[int(number)] for number in numbers]
            more["confidence"] = [f"{value:.4f}" for value in sure]
        more["loss"] = [f"{value:.4g}" for value in losses]
        columns = {
            "id": [row.id for row in asked.rows],
            "prediction": words,
            "label": [row.label for row in asked.rows],
        }
        return columns | more, numbers

    def record(self, trial: Trial, scores: Mapping[str, Any]) -> Record:
        layout, dataset = self.layout, self.world.dataset
        costs = {
            **counted(layout),
            "bundle_bytes": 4 * layout.parameters + 1000,
        }
        table = score_table(dataset.tasks, scores)
        best = {"best_step": STEPS // 2, "best_score": table.overall["validation"]["overall"]}
        shares = {task: (n + trial.seed) / 10 for n, task in enumerate(dataset.tasks)}
        train = {"steps": STEPS, "evaluations": EVALUATIONS, "gradient_shares": shares, **best}
        skill = Skill(train=train, costs=costs, warnings=self.warnings)
        made = made_record(trial.recipe, scores, skill)
        return replace(
            made,
            run_info=replace(
                made.run_info,
                plan=layout.plan.name,
                tasks=tuple(dataset.tasks),
                encoder=trial.recipe.encoder,
                seed=trial.seed,
                started="2026-01-01T00:00:00+00:00",
                finished="2026-01-01T00:10:00+00:00",
            ),
            scores=table,
            meta_info=made_meta(
                encoder=trial.recipe.encoder,
                encoder_sha256=find_encoder(trial.recipe.encoder).digest,
                encoder_shape=asdict(layout.encoder),
                data_sha256=dict(dataset.digests),
                data_notes=dataset.notes,
                **self.meta,
            ),
        )


def counted(layout: Layout) -> dict[str, Any]:
    return {
        "parameters": layout.parameters,
        "trained_parameters": layout.trained,
        "parameters_by_owner": dict(layout.sizes),
        "weight_bytes": 4 * layout.parameters,
        "training_state_bytes": 12 * layout.trained,
        "flops_per_example": {
            task: 2.0 * sum(layout.sizes[owner] for owner in route.owners)
            for task, route in layout.routes.items()
        },
        "flops_per_step": 2.0 * layout.parameters + 4.0 * layout.trained,
    }


def measured(layout: Layout) -> dict[str, Any]:
    """What a cost pass would say: the more weights, the slower."""
    seconds = 1e-7 * layout.parameters + 1e-6 * layout.trained
    return {
        **counted(layout),
        "step_seconds": seconds,
        "train_seconds": STEPS * seconds,
        "encode_seconds": 0.0,
        "latency_seconds": 2e-7 * layout.parameters,
        "latency_by_task": dict.fromkeys(layout.tasks, 1e-07 * layout.parameters),
        "throughput": 1e7 / layout.parameters,
        "peak_memory_bytes": 20 * layout.parameters,
        "disk_bytes": 4 * layout.parameters,
        "planned_steps": STEPS,
        "noise": 0.05,
        "warnings": [],
    }


def curve(tasks: Mapping[str, Task], scores: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Losses that fall, and evaluations that rise to the validation scores."""
    for step in (1, *range(10, STEPS + 1, 10)):
        losses = {name: 0.3 + np.exp(-step / 30) * (1 + n) for n, name in enumerate(tasks)}
        yield {
            "step": step,
            "epoch": round(step / 50, 4),
            "seconds": step / 10,
            "loss": sum(losses.values()),
            "losses": losses,
            "gradient_norm": 1 + 10 / step,
            "loss_weights": dict.fromkeys(tasks, 1.0),
        }
        if step % (STEPS // EVALUATIONS) == 0 or step == STEPS:
            yield evaluation(tasks, scores, step)


def evaluation(tasks: Mapping[str, Task], scores: Mapping[str, Any], step: int) -> dict[str, Any]:
    share = 1 - np.exp(-step / 15)
    selection = {
        name: {k: v * share if k != "rows" else v for k, v in scores[name]["validation"].items()}
        for name in tasks
    }
    overall = overall_of(tasks, selection)
    return {"step": step, "epoch": step / 50, "seconds": step / 10, "selection": selection} | {
        **overall,
        "best": True,
    }
