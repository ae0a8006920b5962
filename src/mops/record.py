"""What a run writes down: record.json (`Record`) and curve.jsonl, read and written here.

    record = read_record("runs/shared/record.json")
    record.scores.tasks["sentiment"]["report"]["accuracy"]
    record.scores.overall["report"]["overall"]
    record.costs.parameters, record.train_info.best_step, record.run_info.recipe

Keys of the file are the names of the fields.
"""

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from mops import __version__
from mops.errors import UsageError
from mops.files import file_digest
from mops.yaml_io import content_digest, read_json, to_value

FORMAT = 2  # of record.json
CONVERGED = 0.005  # a smaller change of the score by the last evaluation
# A task has hardly begun below most of a pass and this many rows or batches. With `shared`, scores
# of the three CS224N tasks rose by 0.02 to 0.05 from 4,224 rows each (docs/results.md, race) to
# 9,760 (docs/log.md), and by less than their errors to 16,000. Large sets need no whole pass.
LEAST_PASSES, LEAST_ROWS, LEAST_BATCHES = 0.8, 10_000, 50
# Files of the package that `code_digest` is of: not those that judge, show or serve results.
CODE = (
    "*.py", "config/*", "data/*.*", "evaluate/evaluate.py", "evaluate/metrics.py", "kinds/*",
    "model/*", "plans/*", "predict/*", "training/*",
)  # fmt: skip
PACKAGES = ("torch", "torchjd", "numpy", "tokenizers", "safetensors", "pydantic")
Metrics = Mapping[str, int | float]  # metric -> value; `rows` and `stderr` are among them


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    plan: str
    tasks: tuple[str, ...]
    encoder: str
    seed: int
    recipe: Mapping[str, Any]  # complete: `to_recipe` reads it
    started: str = ""
    finished: str = ""
    status: str = "finished"


@dataclass(frozen=True)
class TaskBudget:
    """One task's part of a run."""

    rows: int  # of its training split
    batches: int
    examples: int  # rows seen, counting repetitions
    passes: float

    @property
    def is_starved(self) -> bool:
        """Whether a task that is trained is likely to gain much from a larger budget."""
        is_short = self.examples < LEAST_ROWS or self.batches < LEAST_BATCHES
        return self.passes < LEAST_PASSES and is_short


@dataclass(frozen=True, kw_only=True)
class TaskTraining(TaskBudget):
    planned_batches: int


@dataclass(frozen=True, kw_only=True)
class StageTraining:
    steps: int
    planned_steps: int
    frozen: bool
    schedule: str


@dataclass(frozen=True, kw_only=True)
class TrainInfo:
    steps: int
    planned_steps: int
    steps_per_epoch: int
    epochs: float
    stopped_early: bool
    best_step: int
    best_score: float | None
    evaluations: int
    last_change: float | None  # of the score, by the last evaluation
    train_seconds: float  # training steps only
    run_seconds: float  # the whole run, with evaluations and final scores
    batched: int  # runs that were trained as one batch and share its time
    processes: int
    step_seconds_median: float
    tokens: int
    frozen_seconds: float
    frozen_sequences: Mapping[str, int]  # of the frozen prefix: computed, found
    loss_weights: Mapping[str, float]
    gradient_shares: Mapping[str, float]
    tasks: Mapping[str, TaskTraining]
    stages: tuple[StageTraining, ...]

    @property
    def best_epoch(self) -> float:
        return self.best_step / self.steps_per_epoch

    @property
    def is_best_last(self) -> bool:
        """Whether the last evaluation was clearly the best: a larger budget may be better."""
        is_last = self.evaluations > 1 and self.best_step == self.steps
        has_changed = self.last_change is None or self.last_change >= CONVERGED
        return is_last and has_changed and not self.stopped_early

    @property
    def is_best_first(self) -> bool:
        """Whether the first evaluation was the best: what followed made the model worse."""
        return self.evaluations > 2 and 0 < self.best_step * self.evaluations <= 1.5 * self.steps


@dataclass(frozen=True, kw_only=True)
class RunScores:
    """All metrics; splits are report, validation, test and train.

    `report` are the validation rows, each judged by the state that the other half of them chose;
    `validation` are the same rows, judged by the model in the bundle, which all of them chose.
    """

    main: Mapping[str, str]  # task -> the metric that counts in an overall score
    overall: Mapping[str, Metrics]  # split -> overall, overall_normalised
    tasks: Mapping[str, Mapping[str, Metrics]]  # task -> split -> metrics
    untrained: tuple[str, ...]  # tasks without a training step: not in an overall score


@dataclass(frozen=True, kw_only=True)
class PlanCosts:
    """Costs that a record and a survey share. Weights and training state are never added up."""

    parameters: int
    trained_parameters: int
    parameters_by_owner: Mapping[str, int]
    parameters_by_task: Mapping[str, int]
    weight_bytes: int
    training_state_bytes: int
    flops_per_example: Mapping[str, float]
    flops_per_step: float
    train_seconds: float  # training steps only
    train_joules: float | None = None  # of all processors meanwhile; None: no counter was read
    latency_seconds: float | None = None  # of one request to all tasks; None: not measured
    latency_by_task: Mapping[str, float] = field(default_factory=dict)  # of one to each alone


@dataclass(frozen=True, kw_only=True)
class RunCosts(PlanCosts):
    """What one run cost."""

    step_seconds_median: float
    peak_memory_bytes: int
    bundle_bytes: int


@dataclass(frozen=True, kw_only=True)
class MetaInfo:
    """Where and of what the run was made."""

    python: str
    packages: Mapping[str, str]
    platform: str
    processor: str
    command: str
    device: str
    threads: int
    encoder: str
    encoder_sha256: str
    encoder_shape: Mapping[str, bool | int | float | str]  # the fields of an EncoderShape
    data_sha256: Mapping[str, str]
    data_notes: tuple[str, ...]
    commit: str = ""  # of the checkout that the package was run from; "-dirty" if it was changed
    base_sha256: str = ""  # of the weights of the model that these tasks joined
    # Records of older versions have none of these.
    encoder_files_sha256: str = ""  # of the encoder's weights, tokenizer and config together
    code_sha256: str = ""  # of the parts of the package that decide a result


@dataclass(frozen=True, kw_only=True)
class Record:
    """Everything that tables, reports and surveys read about one run."""

    run_info: RunInfo
    train_info: TrainInfo
    scores: RunScores
    costs: RunCosts
    warnings: tuple[str, ...]
    meta_info: MetaInfo
    # Records of older versions have none of these. Of each file in predictions/; the scores of the
    # untrained encoder and of a linear probe on it, by task; of the weights in the bundle.
    predictions_sha256: Mapping[str, str] = field(default_factory=dict)
    references: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    model_sha256: str = ""
    sha256: str = field(default="", compare=False)  # of all else in the file, as it was written
    format: int = FORMAT

    def to_data(self) -> dict[str, Any]:
        """What was not measured is left out of the costs."""
        data = asdict(self)
        data["costs"] = {key: own for key, own in data["costs"].items() if own is not None}
        return data | {"sha256": content_digest(data)}

    def to_json(self) -> str:
        return json.dumps(self.to_data(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_record(path: str | Path) -> Record:
    """The record in a file record.json."""
    data = read_format(Path(path), FORMAT, "a record of a run")
    return to_value(Record, data, where=str(path), error=UsageError)


def read_format(path: Path, expected: int, what: str) -> dict[str, Any]:
    """The JSON object in a file that was written in this format, or one line that says why not."""
    try:
        data = read_json(path)
    except UsageError as cause:
        raise UsageError(f"{path} is not {what}: {cause}") from cause
    format_number = data.get("format")
    if format_number != expected:
        raise UsageError(
            f"{path} is not {what} that this version of mops reads: its format is {format_number}, "
            f"expected {expected}; make it again, or use the version that wrote it"
        )
    return data


class CurveLine(BaseModel):
    """A step or an evaluation; what else a line says stays as it is."""

    model_config = ConfigDict(strict=True, extra="allow")

    step: Annotated[int, Field(ge=0, lt=2**63)]
    epoch: FiniteFloat
    seconds: FiniteFloat
    loss: float | None = None
    losses: Mapping[str, float | None] = {}
    selection: Mapping[str, Mapping[str, float | None]] = {}
    overall: float | None = None


def read_curve(path: Path) -> Iterator[Mapping[str, Any]]:
    """The lines of curve.jsonl: losses of steps, scores of evaluations; a torn line ends it."""
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                yield CurveLine.model_validate(json.loads(line)).model_dump(exclude_unset=True)
    except (OSError, ValueError):
        return


def machine_info() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "packages": {"mops": __version__} | {name: version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "processor": processor_name(),
        "command": " ".join(["mops", *sys.argv[1:]]),
        "commit": checkout_commit(Path(__file__).parents[2]),
        "code_sha256": code_digest(),
    }


@cache
def code_digest() -> str:
    """A digest of the code that decides a result: other code may train otherwise."""
    package, digest = Path(__file__).parent, hashlib.sha256()
    files = {path for pattern in CODE for path in package.glob(pattern)}
    for path in sorted(path for path in files if path.suffix in (".py", ".yaml")):
        digest.update(f"{path.relative_to(package)} {file_digest(path)}\n".encode())
    return digest.hexdigest()


@cache
def checkout_commit(root: Path) -> str:
    """The commit of this checkout, with "-dirty" if tracked files differ; empty elsewhere.

    The package is in its `src`. No hook and no monitor of git runs, and git writes nothing.
    """
    if not (root / ".git").exists():
        return ""
    words = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath="]
    own = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}

    def ask(*more: str) -> str:
        answer = subprocess.run(
            [*words, *more], cwd=root, env=own, timeout=10, check=True, capture_output=True
        )
        return answer.stdout.decode().strip()

    try:
        commit = ask("rev-parse", "--verify", "HEAD")
        is_dirty = bool(ask("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):  # no git, or one that refuses this folder
        return ""
    return f"{commit}-dirty" if is_dirty else commit


def processor_name() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
