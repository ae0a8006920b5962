"""How several tasks train one network: the names a recipe may say, with their sources.

The settings of a recipe: one task's entry, and how a network is trained. Plain data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mops.errors import RecipeError
from mops.plans.shapes import FEATURES, HEADS, HeadShape, Reading
from mops.tasks import Task, canonical_label
from mops.yaml_io import to_value

LOSS_WEIGHTS = ("uncertainty", "dwa")
SUM = "sum"  # the gradients as they are: one backward pass, nothing per task


@dataclass(frozen=True)
class Aggregator:
    """A way to make one gradient out of one per task: a class of torchjd.aggregation."""

    kind: str
    source: str
    options: Mapping[str, float] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # packages of its solver
    extra: str = ""  # torchjd's name for them


# Not here: krum and trimmed-mean are against broken machines, pcd ranks the tasks by their order;
# the memory of nash-mtl is not kept in tensors and that of excess-mtl is as large as all gradients,
# so neither could be resumed from a small file.
# Numbers: c is CAGrad's on NYU-v2; alpha 1 is proportional fairness.
AGGREGATORS: Mapping[str, Aggregator] = {
    "pcgrad": Aggregator("PCGrad", "Yu et al. 2020"),
    "gradvac": Aggregator("GradVac", "Wang et al. 2021"),
    "mgda": Aggregator("MGDA", "Désidéri 2012; Sener and Koltun 2018"),
    "imtl-g": Aggregator("IMTLG", "Liu et al. 2021"),
    "aligned-mtl": Aggregator("AlignedMTL", "Senushkin et al. 2023"),
    "config": Aggregator("ConFIG", "Liu et al. 2024"),
    "graddrop": Aggregator("GradDrop", "Chen et al. 2020"),
    "random": Aggregator("Random", "Lin et al. 2021"),
    "mean": Aggregator("Mean", "the sum divided by the number of tasks"),
    "upgrad": Aggregator(
        "UPGrad",
        "Quinton and Rey 2024",
        needs=("qpsolvers", "quadprog"),
        extra="quadprog_projector",
    ),
    "dualproj": Aggregator(
        "DualProj",
        "Lopez-Paz and Ranzato 2017",
        needs=("qpsolvers", "quadprog"),
        extra="quadprog_projector",
    ),
    "cagrad": Aggregator(
        "CAGrad", "Liu et al. 2021", {"c": 0.4}, needs=("cvxpy", "clarabel"), extra="cagrad"
    ),
    "fairgrad": Aggregator(
        "FairGrad", "Ban and Ji 2024", {"alpha": 1.0}, needs=("scipy",), extra="fairgrad"
    ),
}


def check_solver_installed(gradients: str) -> None:
    """Say before a run which package its way to combine gradients lacks."""
    row = AGGREGATORS.get(gradients)
    missing = [name for name in row.needs if find_spec(name) is None] if row else []
    if row and missing:
        raise RecipeError(
            f"training.gradients: {gradients} needs {' and '.join(missing)}, not installed here; "
            f"pip install 'torchjd[{row.extra}]', or name another"
        )


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1, strict=True)]
Label = bool | str | int | float
ScheduleName = Literal[
    "together", "in-turn", "round-robin", "random", "proportional", "sqrt", "temperature",
    "mixed", "annealed", "staggered",
]  # fmt: skip
Decay = Literal["none", "linear", "cosine", "one-cycle"]
Tracker = Literal["tensorboard", "mlflow", "wandb", "trackio"]
Warmup = Annotated[float, Field(ge=0)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class TaskEntry(Strict):
    """One task of a recipe: what it is and where its rows are."""

    type: str = Field(description="classification, pair_classification or similarity")
    text: str | tuple[str, ...] = Field(description="column or columns that hold the text")
    label: str = Field(description="column that holds the label; never one of the text columns")
    labels: tuple[Label, ...] = Field(
        (), description="the classes; default: read from the training file"
    )
    range: tuple[float, float] | None = Field(
        None, description="lowest and highest similarity, as [0, 5]"
    )
    train: str | None = Field(None, description="training file")
    validation: str | None = Field(None, description="validation file")
    test: str | None = Field(None, description="test file; its labels may be missing")
    split: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="share of the training rows for validation when there is no such file"
    )
    columns: tuple[str, ...] = Field((), description="column names of files without a header")
    on_bad_row: Literal["error", "skip"] = Field(
        "error", description="what to do with rows that cannot be used"
    )
    loss: str = Field(
        "",
        description="cross_entropy, binary_cross_entropy, ordinal (three or more classes, in the "
        "order of labels) or mse; default: by type",
    )
    score: str = Field("", description="the score that stands for the task; default: by type")
    class_weights: tuple[Positive, ...] = Field(
        (), description="weight of each class in the loss, in the order of labels"
    )

    def task(self, name: str) -> Task:
        return Task(
            name=name,
            type=self.type,
            text=(self.text,) if isinstance(self.text, str) else self.text,
            label=self.label,
            labels=tuple(canonical_label(word_of(label)) for label in self.labels),
            range=self.range,
            loss=self.loss,
            score=self.score,
            class_weights=self.class_weights,
        )

    def files(self) -> dict[str, str]:
        named = {"train": self.train, "validation": self.validation, "test": self.test}
        return {split: file for split, file in named.items() if file is not None}


def word_of(label: Label) -> str:
    """A label as files write it: YAML's true is the word true."""
    return str(label).lower() if isinstance(label, bool) else str(label)


class Augment(Strict):
    """What is changed in training rows, anew in every pass; never in rows that are scored."""

    word_dropout: Share = Field(
        0.0, description="chance of each word to be left out; at least one stays"
    )
    swap: tuple[str, ...] = Field(
        (), description="pair tasks whose two texts change places in half of the rows"
    )


class Stage(Strict):
    """A part of a run with its own rates, warm-up, decay and optimiser; the rest as in training."""

    steps: Count = Field(description="of this stage; the run is all stages, one after the other")
    frozen: bool = Field(False, description="the encoder does not move here, as after `frozen+`")
    tasks: tuple[str, ...] = Field((), description="those that are trained here; default: all")
    schedule: ScheduleName | None = Field(None, description="default: as in training")
    learning_rate: Positive | None = Field(None, description="default: as in training")
    head_learning_rate: Positive | None = Field(None, description="default: as in training")
    lr_scheduler_type: Decay | None = Field(
        None, description="over this stage; default: as in training"
    )
    warmup_steps: Warmup | None = Field(
        None, description="a number, or a share of this stage below 1; default: as in training"
    )


class Training(Strict):
    """How a network is trained. Keys follow transformers' names where it has one."""

    pair: Literal["cross", "bi"] = Field(
        "cross", description="a pair as one sequence with a separator, or as two sequences"
    )
    pool: Literal["pooler", "cls", "mean", "sum"] = Field(
        "mean", description="which vector stands for a sequence"
    )
    features: tuple[str, ...] = Field(
        ("difference", "product"),
        description=f"what a head sees of a bi pair: {', '.join(FEATURES)}, one or more",
    )
    head: str | dict[str, Any] = Field(
        "linear", description="linear, mlp, cosine; or its settings; or one per task"
    )
    max_length: Annotated[int, Field(ge=3)] = Field(
        256, description="tokens of a sequence; what is longer is cut"
    )
    num_train_epochs: Positive = Field(3, description="epochs; one is a pass over the largest task")
    steps_per_epoch: Count | None = Field(None, description="steps of an epoch, instead of a pass")
    max_steps: Count | None = Field(None, description="steps in all, instead of epochs")
    per_task_batch_size: Count | dict[str, Count] = Field(
        16, description="rows of a task in a step: a number, or one per task"
    )
    learning_rate: Positive = Field(5e-5, description="of the encoder")
    head_learning_rate: Positive = Field(1e-3, description="of heads and late layers")
    layer_decay: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="factor on the rate for each layer further from the top"
    )
    lr_scheduler_type: Decay = Field("linear", description="how the rates change over the run")
    warmup_steps: Warmup = Field(
        0.1, description="steps of rising rates: a number, or a share of all steps below 1"
    )
    weight_decay: Annotated[float, Field(ge=0)] = Field(
        0.01, description="decoupled; not on biases and norms"
    )
    adam_epsilon: Positive = Field(1e-6, description="AdamW's epsilon")
    max_grad_norm: Annotated[float, Field(ge=0)] = Field(1.0, description="clipping; 0: none")
    dropout: Share = Field(0.1, description="of the encoder")
    head_dropout: Share = Field(0.1, description="before and inside the heads")
    schedule: ScheduleName = Field(
        "together",
        description="which task next. `together`: a batch of every task in each step; `in-turn`: "
        "one task's pass after the other; `mixed`: batches out of the shuffled rows of all tasks; "
        "the others give each step to one task. `round-robin`: each after the other; "
        "`staggered`: the largest task alone, then round-robin; drawn with a chance in proportion "
        "to rows^a: `random` a = 0, `sqrt` a = 0.5, `proportional` a = 1, `temperature` a = 1/T, "
        "`annealed` a from 1 in the first epoch to 0.2 in the last",
    )
    temperature: Positive = Field(
        2.0, description="T of `schedule: temperature`; 1 draws by size, a large one evenly"
    )
    staggered_share: Share = Field(
        0.25, description="share of the steps that `schedule: staggered` gives the largest task"
    )
    task_steps: dict[str, Count] = Field(
        default_factory=dict, description="most batches of a task by name; then it has no more"
    )
    train_tasks: tuple[str, ...] = Field(
        (), description="tasks that are trained; the others are only scored; default: all"
    )
    stages: tuple[Stage, ...] = Field(
        (), description="parts of the run, one after the other, instead of max_steps and epochs"
    )
    augment: Augment | None = Field(None, description="changes to training rows; default: none")
    loss_weights: dict[str, Annotated[float, Field(ge=0)]] | str = Field(
        default_factory=dict,
        description="weight of each task's loss by name, default 1, and 0: it does not learn; "
        f"or how weights are found: {', '.join(LOSS_WEIGHTS)}",
    )
    dwa_steps: Count | None = Field(
        None,
        description="loss_weights dwa: steps between new weights; "
        "default: an epoch or a tenth of all steps, the smaller",
    )
    gradients: str = Field(
        SUM,
        description="how the tasks' gradients of shared weights are combined: "
        f"{', '.join((SUM, *AGGREGATORS))}",
    )
    eval_steps: Count | None = Field(None, description="steps between evaluations; default: epoch")
    save_steps: Count | None = Field(None, description="steps between saves; default: a minute")
    early_stopping: Count | None = Field(
        None, description="stop after this many evaluations without a better one"
    )
    best_by: Literal["overall", "overall_normalised"] = Field(
        "overall", description="the score on the selection half that picks the best state"
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(11711, description="of everything random")
    threads: Count | None = Field(None, description="of the processor; default: its cores")
    device: str = Field("auto", description="where to compute: auto, cpu, cuda, cuda:1, mps, ...")
    torch_compile: bool = Field(False, description="compile the feed-forward blocks")
    report_to: Literal["none", Tracker] | tuple[Tracker, ...] = Field(
        "none",
        description="who is told what curve.jsonl gets: tensorboard, mlflow, wandb, trackio, or a "
        "list of these; changes nothing that is trained",
    )

    @property
    def trackers(self) -> tuple[str, ...]:
        """The names in `report_to`, each once."""
        told = (self.report_to,) if isinstance(self.report_to, str) else self.report_to
        return tuple(name for name in dict.fromkeys(told) if name != "none")

    def batch_size(self, task: str) -> int:
        sizes = self.per_task_batch_size
        return sizes[task] if isinstance(sizes, dict) else sizes

    def weight(self, task: str) -> float:
        """Of the task's loss; a task of weight 0 does not learn."""
        given = self.loss_weights
        return given.get(task, 1.0) if isinstance(given, dict) else 1.0

    def learns(self, task: str) -> bool:
        """Whether the task is meant to be trained."""
        return self.weight(task) > 0 and task in (self.train_tasks or (task,))

    def in_stage(self, stage: Stage) -> Training:
        """What holds in a stage: its own keys, and these for the rest."""
        own = stage.model_dump(exclude={"steps", "frozen", "tasks"}, exclude_none=True)
        own["train_tasks"] = stage.tasks or self.train_tasks
        return self.model_copy(update={**own, "max_steps": stage.steps, "stages": ()})

    def reading(self, tasks: dict[str, Task]) -> Reading:
        return Reading(
            pair=self.pair,
            pool=self.pool,
            features=self.features,
            max_length=self.max_length,
            heads={name: head_of(self.head, name, tasks) for name in tasks},
        )


def head_of(given: str | dict[str, Any], name: str, tasks: dict[str, Task]) -> HeadShape:
    """The head of one task: one setting for all, or a mapping by task name."""
    if isinstance(given, dict) and set(given) <= set(tasks):
        given = given.get(name, "linear")
    data = {"kind": given} if isinstance(given, str) else given
    if not isinstance(data, dict) or data.get("kind", "linear") not in HEADS:
        raise RecipeError(
            f"training.head: {given!r}; allowed: {', '.join(HEADS)}, a mapping with `kind`, "
            f"or one of these per task ({', '.join(tasks)})"
        )
    head = to_value(HeadShape, data, where="training.head", error=RecipeError)
    if head.kind == "cosine" and not tasks[name].is_similarity:
        raise RecipeError(
            f"training.head: a cosine answers a similarity, {name!r} is a {tasks[name].type}; "
            "give heads per task, as {" + name + ": linear}"
        )
    return head
