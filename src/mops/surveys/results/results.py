"""`Results`: one survey, judged. Tables, figures, page, papers and recommendation read this table.

    results = read_results(folder)                    # summary.json; judge_survey makes it anew
    for candidate in results.candidates:              # the best score first
        candidate.overall.mean, candidate.scores["sentiment"].stderr    # over seeds: Estimate
        candidate.against["overall"].low              # minus its reference: Difference
        candidate.gains["sentiment"]                  # minus a model of its own: Difference
        candidate.costs.parameters, candidate.costs.latency_seconds     # None: no cost pass
        candidate.values("sentiment", "test", "f1")   # one number for each seed
        for trial in candidate.trials:                # one training: candidate x seed
            trial.metrics["sentiment"]["validation"]["accuracy"]  # task x split x metric
            trial.train_info.steps, trial.warnings
            read_record(results.run_folder(trial) / "record.json")
    results["hybrid:3"], results.missing, results.caveats
    results.joint()["overall"].best_set()             # all candidates together: `evaluate.joint`

The keys of scores, against and metrics are the tasks and "overall", "overall_normalised" (in
metrics: the task "overall" with both as metrics). What was not measured or learnt has no key.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mops.errors import UsageError
from mops.evaluate.joint import Difference, Estimate, Joint, joint_scores
from mops.evaluate.metrics import EQUAL, Weights
from mops.evaluate.statistics import RowNoise
from mops.files import write_text
from mops.record import Metrics, PlanCosts, TrainInfo, read_format
from mops.surveys.ledger import Round
from mops.yaml_io import content_digest, to_value

FORMAT = 2  # of summary.json
# Of a trial without a result.
FAILED, LEFT_OUT, WAITING, PAUSED = STATES = ("failed", "left out", "waiting", "paused")
COST_PASS, RECORDS = "cost pass", "records of the trainings"  # where times come from


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    id: str  # the name of its folder
    seed: int
    digest: str  # of its predictions: equal digests, equal predictions
    scores: Mapping[str, float]  # main metric of each task and both overall scores, as judged
    metrics: Mapping[str, Mapping[str, Metrics]]  # task -> split -> metric -> value
    train_info: TrainInfo
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CandidateCosts(PlanCosts):
    """What one candidate costs. Throughput and noise are of the cost pass alone."""

    step_seconds: float
    peak_memory_bytes: int  # of a training
    disk_bytes: int
    source: str  # of the times: the cost pass, or the records of the trainings
    throughput: float | None = None  # rows per second
    encode_seconds: float | None = None  # of the frozen prefix, once before the training
    noise: float | None = None  # relative spread of the baseline's own step time
    waited: float = 0.0  # fraction of the cost pass in which other programs had the processor
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CandidateResult:
    """One candidate over its seeds: how good it is, what it costs, and what it differs from."""

    name: str
    plan: str
    settings: Mapping[str, Any]  # what varies in the survey
    learning_rate: float
    head_learning_rate: float
    loss_weights: Mapping[str, float]
    tasks: tuple[str, ...]  # that it has learnt
    reference: str  # what it is compared with: the baseline, if that learns the same tasks
    mcnemar: Mapping[str, tuple[float, ...]]  # exact p against the reference, for each seed
    costs: CandidateCosts
    trials: tuple[TrialResult, ...]
    missing_seeds: tuple[int, ...]
    is_best: bool = True  # whether it may be the best: see `Joint.best_set`
    scores: Mapping[str, Estimate] = field(default_factory=dict)
    against: Mapping[str, Difference] = field(default_factory=dict)  # minus its reference
    gains: Mapping[str, Difference] = field(default_factory=dict)  # minus the single-task candidate
    tm_relative: float | None = None  # score per time and memory; the reference's is 1

    @property
    def overall(self) -> Estimate:
        return self.scores["overall"]

    def does_work_of(self, other: "CandidateResult") -> bool:
        """Whether only noise can separate the times of these two: plans with equal FLOPs and as
        many weights to update (to three digits), all else equal; or also equal predictions.
        """
        work, theirs = (
            f"{one.costs.flops_per_step:.3g} {one.costs.trained_parameters:.3g}"
            for one in (self, other)
        )
        answers, others = ([(t.seed, t.digest) for t in one.trials] for one in (self, other))
        settings = {**self.settings, "plan": ""} == {**other.settings, "plan": ""}
        return work == theirs and (settings or answers == others)

    def values(self, task: str, split: str, metric: str) -> list[float]:
        """The metric of each seed that has it."""
        metrics = (trial.metrics.get(task, {}).get(split, {}) for trial in self.trials)
        return [float(values[metric]) for values in metrics if metric in values]


@dataclass(frozen=True)
class Group:
    """Candidates that learnt the same tasks: only their overall scores can be compared."""

    candidates: tuple[str, ...]
    rows: Mapping[str, RowNoise]  # by task


@dataclass(frozen=True)
class MissingTrial:
    """A trial without a result: failed, left out of the comparison, waiting, or paused."""

    id: str
    name: str
    candidate: str
    seed: int
    state: str
    reason: str


@dataclass(frozen=True)
class Caveat:
    """What makes the comparison less certain than it looks."""

    kind: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Results:
    """A survey, judged."""

    folder: Path  # of the survey, or of the single run; not in summary.json
    name: str
    baseline: str
    single: str | None  # the candidate with one model per task
    on: str  # the rows that judge: report or test
    seeds: tuple[int, ...]
    tasks: Mapping[str, str] = field(default_factory=dict)  # task -> its main metric
    rows: Mapping[str, int] = field(default_factory=dict)  # task -> how many judge
    candidates: tuple[CandidateResult, ...] = ()  # group by group, the best score first
    groups: tuple[Group, ...] = ()  # that of the baseline first
    rounds: tuple[Round, ...] = ()  # of a race, or of seeds that were added
    missing: tuple[MissingTrial, ...] = ()
    caveats: tuple[Caveat, ...] = ()
    # Of what needs no training: reference -> task -> score on a sample of the validation rows.
    references: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    key: str = ""  # a digest of the files that were judged
    sha256: str = field(default="", compare=False)  # of all else in summary.json
    format: int = FORMAT

    def __getitem__(self, name: str) -> CandidateResult:
        return next(one for one in self.candidates if one.name == name)

    def __contains__(self, name: object) -> bool:
        return any(one.name == name for one in self.candidates)

    def in_state(self, state: str) -> list[MissingTrial]:
        return [trial for trial in self.missing if trial.state == state]

    def run_folder(self, trial: TrialResult) -> Path:
        """Where the record, the curve and the predictions of a trial lie."""
        is_run = (self.folder / "record.json").is_file()
        return self.folder if is_run else self.folder / "trials" / trial.id

    def joint(self, group: Group | None = None, weights: Weights = EQUAL) -> dict[str, Joint]:
        """The joint estimate of each score over a group; default: that of the baseline."""
        group = group or self.groups[0]
        members = [self[name] for name in group.candidates]
        values = {
            task: {c.name: {t.seed: t.scores[task] for t in c.trials} for c in members}
            for task in group.rows
        }
        metrics = {task: self.tasks[task] for task in group.rows if task in self.tasks}
        return joint_scores(metrics, values, group.rows, weights)

    def to_data(self) -> dict[str, Any]:
        data = {key: value for key, value in asdict(self).items() if key != "folder"}
        return data | {"sha256": content_digest(data)}

    def write(self) -> None:
        """summary.json in the folder of the survey; `read_results` reads it."""
        text = json.dumps(self.to_data(), indent=2, ensure_ascii=False, allow_nan=False)
        write_text(self.folder / "summary.json", text + "\n")


def read_results(path: Path) -> Results:
    """The results in a file summary.json, or in the folder of a survey."""
    path = path / "summary.json" if path.is_dir() else path
    data = read_format(path, FORMAT, "the results of a survey (`mops survey` writes them)")
    data["folder"] = path.parent
    return to_value(Results, data, where=str(path), error=UsageError)
