"""Surveys whose right answer is known: records and predictions made by hand, nothing trained."""

from __future__ import annotations

import csv
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mops.config.recipe import Recipe, to_recipe
from mops.evaluate.joint import Estimate
from mops.evaluate.metrics import overall_scores, score
from mops.evaluate.statistics import RowNoise
from mops.record import (
    MetaInfo,
    Record,
    RunCosts,
    RunInfo,
    RunScores,
    TaskTraining,
    TrainInfo,
)
from mops.surveys.ledger import Candidate, Round, Trial
from mops.surveys.results.judge import compare_group
from mops.surveys.results.results import (
    COST_PASS,
    CandidateCosts,
    CandidateResult,
    Group,
    Results,
    TrialResult,
)

ROWS = 400
PARTS = ("validation", "report")
TASKS: dict[str, dict[str, Any]] = {
    "sentiment": {
        "type": "classification",
        "text": "sentence",
        "label": "sentiment",
        "labels": ["bad", "middling", "good"],
    },
    "similarity": {
        "type": "similarity",
        "text": ["sentence1", "sentence2"],
        "label": "similarity",
        "range": [0, 5],
    },
}


def plain_recipe(plan: str = "shared", tasks: Sequence[str] = tuple(TASKS)) -> Recipe:
    files = {"train": "train.csv", "validation": "dev.csv"}
    return to_recipe({"tasks": {name: TASKS[name] | files for name in tasks}, "plan": plan})


class Named(Candidate):
    """A candidate whose trials need no files to have an id."""

    def trial(self, seed: int) -> Trial:
        name = hashlib.sha256(f"{self.name}/{seed}".encode()).hexdigest()[:12]
        return replace(super().trial(seed), known_id=name)


@dataclass
class MadeSurvey:
    """As much of a survey as a summary asks for."""

    made: list[Candidate]
    seeds: tuple[int, ...] = (1, 2, 3)
    baseline: str = "shared"
    single: str | None = None
    on: str = "report"
    name: str = "made"
    rounds: tuple[Round, ...] = ()

    def candidates(self) -> list[Candidate]:
        return self.made

    def trials(self) -> list[Trial]:
        pairs = [(one.name, seed) for seed in self.seeds for one in self.made]
        pairs += [
            (n, seed) for entry in self.rounds for seed in entry.seeds for n in entry.candidates
        ]
        return [self.trial(*pair) for pair in dict.fromkeys(pairs)]

    def trial(self, name: str, seed: int) -> Trial:
        return next(one for one in self.made if one.name == name).trial(seed)


def made_survey(*names: str, **options: Any) -> MadeSurvey:
    """Candidates by name; all have the same plan but for their settings."""
    return MadeSurvey([Named(name, {"plan": name}, plain_recipe()) for name in names], **options)


# ------------------------------------------------------------------ the files of a trial


@dataclass
class Skill:
    """How well a made trial answers, and what its record says beside that."""

    skill: float = 0.7  # share of right classes; likewise the closeness of similarities
    draw: int = 0  # what makes its answers its own
    rows: int = ROWS
    train: Mapping[str, Any] = field(default_factory=dict)
    costs: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def made_answers(task: str, trial: Trial, skill: Skill) -> tuple[list[Any], list[Any]]:
    """(labels, predictions): a row that is hard for one trial is likely to be hard for another."""
    common, n = np.random.default_rng(len(task)), skill.rows
    own = np.random.default_rng([skill.draw, trial.seed, len(task)])
    hardness, noise = common.random(n), common.normal(size=n)
    if task == "sentiment":
        labels = TASKS[task]["labels"]
        truth = common.integers(0, 3, n)
        is_right = (hardness + 0.05 * own.normal(size=n)) < skill.skill
        answers = np.where(is_right, truth, (truth + 1) % 3)
        return [labels[i] for i in truth], [labels[i] for i in answers]
    truth = (5 * hardness).round(3)
    blurred = truth + 4 * (1 - skill.skill) * (noise + 0.3 * own.normal(size=n))
    return truth.tolist(), np.clip(blurred, 0, 5).round(6).tolist()


def write_trial(folder: Path, trial: Trial, skill: Skill) -> Path:
    """A finished run, as training would have left it: no model, no curve."""
    run = folder / "trials" / trial.id
    recipe = trial.recipe if set(trial.recipe.tasks) <= set(TASKS) else plain_recipe()
    scores: dict[str, Any] = {}
    for name, task in recipe.task_values().items():
        labels, answers = made_answers(name, trial, skill)
        for split in PARTS:
            path = run / "predictions" / f"{name}-{split}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(["id", "prediction", "label"])
                writer.writerows(zip(map(str, range(skill.rows)), answers, labels, strict=True))
        number = float if not task.answer.has_labels else task.labels.index
        x, y = (np.array([number(word) for word in of], float) for of in (labels, answers))
        scores[name] = {part: score(task, x, y) for part in PARTS}
    (run / "record.json").write_text(made_record(recipe, scores, skill).to_json(), "utf-8")
    return run


def made_record(recipe: Recipe, scores: Mapping[str, Any], skill: Skill) -> Record:
    tasks = recipe.task_values()
    main = {name: task.score_name for name, task in tasks.items()}
    costs: dict[str, Any] = {
        "parameters": 20_000_000,
        "trained_parameters": 20_000_000,
        "parameters_by_owner": {"embeddings": 20_000_000},
        "weight_bytes": 80_000_000,
        "training_state_bytes": 240_000_000,
        "parameters_by_task": dict.fromkeys(tasks, 20_000_000),
        "flops_per_example": dict.fromkeys(tasks, 1e9),
        "flops_per_step": 1e10,
        "train_seconds": 10.0,
        "step_seconds_median": 0.1,
        "peak_memory_bytes": 10**9,
        "bundle_bytes": 81_000_000,
    }
    mains = {part: {t: scores[t][part][main[t]] for t in scores} for part in PARTS}
    overall = {part: overall_scores(tasks, found) for part, found in mains.items() if found}
    return Record(
        run_info=RunInfo(
            plan="shared", tasks=tuple(tasks), encoder="", seed=1, recipe=recipe.to_data()
        ),
        train_info=made_training(tuple(tasks), **skill.train),
        scores=RunScores(main=main, overall=overall, tasks=dict(scores), untrained=()),
        costs=RunCosts(**costs | dict(skill.costs)),
        warnings=skill.warnings,
        meta_info=made_meta(),
    )


def made_training(names: Sequence[str], rows: int = 800, **facts: Any) -> TrainInfo:
    seen = TaskTraining(rows=100, batches=100, examples=rows, passes=8.0, planned_batches=100)
    plain: dict[str, Any] = {
        "steps": 100,
        "planned_steps": 100,
        "steps_per_epoch": 50,
        "epochs": 2.0,
        "stopped_early": False,
        "best_step": 50,
        "best_score": 0.5,
        "evaluations": 2,
        "last_change": 0.01,
        "train_seconds": 10.0,
        "run_seconds": 12.0,
        "batched": 1,
        "processes": 1,
        "step_seconds_median": 0.1,
        "tokens": 10_000,
        "frozen_seconds": 0.0,
        "frozen_sequences": {"computed": 0, "found": 0},
        "loss_weights": dict.fromkeys(names, 1.0),
        "gradient_shares": {},
        "tasks": dict.fromkeys(names, seen),
        "stages": (),
    }
    return TrainInfo(**plain | facts)


def made_meta(**facts: Any) -> MetaInfo:
    plain: dict[str, Any] = dict.fromkeys(
        ("python", "platform", "processor", "command", "encoder", "encoder_sha256"), ""
    )
    plain |= {"packages": {}, "device": "cpu", "threads": 1, "encoder_shape": {}}
    return MetaInfo(**plain | {"data_sha256": {}, "data_notes": ()} | facts)


def write_survey(folder: Path, survey: MadeSurvey, skills: Mapping[str, Skill]) -> Path:
    """All trials of the named candidates; each candidate draws for itself."""
    for number, (name, skill) in enumerate(skills.items()):
        own = skill if skill.draw else Skill(**{**vars(skill), "draw": number + 1})
        for seed in survey.seeds:
            write_trial(folder, survey.trial(name, seed), own)
    return folder


def by_name(summary: Results) -> dict[str, CandidateResult]:
    return {one.name: one for one in summary.candidates}


def write_summary(folder: Path, results: Results) -> None:
    replace(results, folder=folder).write()


def write_failure(folder: Path, trial: Trial, reason: str) -> None:
    path = folder / "failed" / f"{trial.id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"name": trial.name, "reason": reason, "when": ""}), "utf-8")


# ------------------------------------------------------------------ standings without files


def made_trial(seed: int = 1, *, score: float = 0.7, rows: int = 800, **facts: Any) -> TrialResult:
    """Facts are of the training, but for id, digest, scores and warnings."""
    keys = ("id", "digest", "warnings", "scores")
    own = {key: facts.pop(key) for key in keys if key in facts}
    scores = dict.fromkeys(("a", "b", "overall", "overall_normalised"), score)
    plain: dict[str, Any] = {"id": f"{seed:012x}", "digest": "", "warnings": (), "scores": scores}
    return TrialResult(
        **plain | own,
        seed=seed,
        metrics={"overall": {}},
        train_info=made_training(("a", "b"), rows=rows, **facts),
    )


def made_standing(name: str, score: float, **facts: Any) -> CandidateResult:
    """Two tasks, a and b, with equal scores of all seeds: the error is of rows.

    Costs as given: millions, milliseconds, seconds.
    """
    seeds = facts.pop("seeds", (1, 2, 3))
    scores = {"a": score, "b": score, "overall": score, "overall_normalised": score}
    scores |= facts.pop("scores", {})
    stderr = facts.pop("stderr", 0.01)
    million, ms, seconds = facts.pop("cost", (20, 10, 60))
    costs = made_costs(
        parameters=1e6 * million,
        latency_seconds=ms and ms / 1000,
        train_seconds=seconds,
        flops_per_step=own_flops(name),
    )
    spread = 0.01 if len(seeds) > 1 else None
    plain: dict[str, Any] = {
        "name": name,
        "plan": name,
        "settings": {"plan": name},
        "learning_rate": 1e-4,
        "head_learning_rate": 1e-3,
        "loss_weights": {"a": 1.0, "b": 1.0},
        "tasks": ("a", "b"),
        "reference": "shared",
        "scores": {key: Estimate(of, stderr, spread, len(seeds)) for key, of in scores.items()},
        "against": {},
        "gains": {},
        "mcnemar": {},
        "costs": costs,
        "tm_relative": 1.0,
        "trials": tuple(
            made_trial(seed, id=f"{name}-{seed}", digest=f"{name}-{seed}", scores=scores)
            for seed in seeds
        ),
        "missing_seeds": (),
    }
    return CandidateResult(**plain | facts)


def own_flops(name: str) -> float:
    """Work that no candidate with another name does."""
    return float(zlib.crc32(name.encode()))


def made_costs(**facts: Any) -> CandidateCosts:
    plain: dict[str, Any] = {
        "parameters": 20_000_000,
        "trained_parameters": 20_000_000,
        "parameters_by_owner": {},
        "parameters_by_task": {},
        "weight_bytes": 80_000_000,
        "training_state_bytes": 240_000_000,
        "flops_per_example": {},
        "flops_per_step": 1e10,
        "train_seconds": 60.0,
        "step_seconds": 0.1,
        "peak_memory_bytes": 1e9,
        "disk_bytes": 81_000_000,
        "source": COST_PASS,
    }
    return CandidateCosts(**plain | facts)


def made_summary(*standings: CandidateResult, **facts: Any) -> Results:
    """Candidates compared as a survey does; their errors are those of the standings."""
    plain: dict[str, Any] = {
        "name": "made",
        "baseline": "shared",
        "single": "separate",
        "on": "report",
        "seeds": (1, 2, 3),
        "tasks": {"a": "accuracy", "b": "accuracy"},
        "rows": {"a": 100, "b": 100},
        "candidates": standings,
        "folder": Path("made"),
    }
    results = Results(**plain | facts)
    by_tasks: dict[tuple[str, ...], list[CandidateResult]] = {}
    for one in standings:
        by_tasks.setdefault(one.tasks, []).append(one)
    candidates: list[CandidateResult] = []
    groups = []
    for tasks, members in by_tasks.items():
        names = tuple(one.name for one in members)
        errors = np.array([one.scores["overall"].stderr for one in members])
        shared = len(tasks) * np.diag(errors**2)  # an overall score is a mean of tasks
        noise = RowNoise(tuple(map(tuple, shared.tolist())), (0.0,) * len(members))
        groups.append(Group(names, dict.fromkeys(tasks, noise)))
        reference = results.baseline if results.baseline in names else names[0]
        candidates += [replace(one, reference=reference) for one in members]
    results = replace(results, candidates=tuple(candidates), groups=tuple(groups))
    for group in groups:
        results = compare_group(results, group)
    return results
