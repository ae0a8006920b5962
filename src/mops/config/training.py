"""The settings of a recipe: the entry of a task, and how the network is trained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from mops.errors import RecipeError
from mops.kinds.classes import canonical_label
from mops.plans.shapes import FEATURES, Feature, HeadShape, Pool, Reading
from mops.tasks import KINDS, Task
from mops.yaml_io import read_own_yaml, to_value

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1, strict=True)]
Label = bool | str | int | float
ScheduleName = Literal[
    "together", "in-turn", "round-robin", "random", "proportional", "sqrt", "temperature",
    "mixed", "annealed", "staggered",
]  # fmt: skip
PairMode = Literal["cross", "bi"]
Decay = Literal["none", "linear", "cosine", "one-cycle"]
Tracker = Literal["tensorboard", "mlflow", "wandb"]
SAME_IN_TASK = ("type", "label", "range", "scale", "loss", "score", "separator")
LOSS_WEIGHTS = ("uncertainty", "dwa")
SUM = "sum"  # plain gradients: one backward pass, nothing per task


@dataclass(frozen=True)
class Aggregator:
    """A way to combine the tasks' gradients: a class of torchjd.aggregation."""

    kind: str
    source: str
    options: Mapping[str, float] = field(default_factory=dict)
    needs: Sequence[str] = ()  # packages of its solver
    extra: str = ""  # torchjd's name for them


AGGREGATORS: Mapping[str, Aggregator] = {
    name: Aggregator(**row)
    for name, row in read_own_yaml(Path(__file__).with_name("aggregators.yaml")).items()
}


def check_solver_installed(gradients: str) -> None:
    row = AGGREGATORS.get(gradients)
    missing = [name for name in row.needs if find_spec(name) is None] if row else []
    if row and missing:
        raise RecipeError(
            f"training.gradients: {gradients} needs {' and '.join(missing)}, not installed here; "
            f"pip install 'torchjd[{row.extra}]', or choose another"
        )


def doc(default: Any, description: str) -> Any:
    return Field(default, description=description)


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class TaskEntry(Strict):
    """One task of a recipe: its kind and its files."""

    type: str = Field(description=", ".join(KINDS))
    text: str | tuple[str, ...] = Field(description="column or columns with the text")
    label: str | tuple[str, ...] = Field(
        description="column with the label, not one of the text columns; of a multilabel also "
        "several columns of 0 and 1"
    )
    labels: tuple[Label, ...] = doc((), "the classes; default: read from the training file")
    range: tuple[float, float] | None = doc(
        None, "lowest and highest value of a similarity or regression, as [0, 5]"
    )
    scale: tuple[float, float] | None = doc(
        None,
        "mean and standard deviation of a regression's labels: the network sees standardised "
        "values; default: of the training file",
    )
    train: str | dict[str, Positive] | None = doc(
        None,
        "training file; several as {file: weight}, the task's own file first. A weight of 0.5 "
        "takes half of a file's rows in each pass, the rest in the next one; 2 takes them twice",
    )
    validation: str | None = doc(None, "validation file")
    test: str | None = doc(None, "test file; its labels may be missing")
    split: Annotated[float, Field(gt=0, lt=1)] | None = doc(
        None, "fraction of the training rows for validation when there is no such file"
    )
    fold: tuple[Count, Count] | None = doc(
        None,
        "the part of the training rows for validation, instead of `split`: [2, 5] is the second of "
        "five; `training.folds` writes this key",
    )
    columns: tuple[str, ...] = doc((), "column names of files without a header")
    split_column: str | None = doc(
        None,
        "column that names the split of a row (train, dev or validation, test); `train`, "
        "`validation` and `test` then name the same file, and each takes its rows",
    )
    decimal: Literal[","] | None = doc(
        None, "`,` where the label's numbers are written as 2,5 or 1.234,56"
    )
    empty: Literal["missing", "no_labels"] = doc(
        "missing",
        "what an empty cell of a multilabel with one column means: `missing`: it is not known; "
        "`no_labels`: the row has none of the labels",
    )
    on_bad_row: Literal["error", "skip"] = doc("error", "how unusable rows are handled")
    separator: str = doc(";", "character between the labels in a cell of a multilabel")
    loss: str = doc(
        "",
        "cross_entropy, binary_cross_entropy, ordinal (three or more classes, in the "
        "order of labels), mse, mae or huber; default: by type",
    )
    score: str = doc("", "the main score of the task; default: by type")
    class_weights: tuple[Positive, ...] | Literal["balanced"] = doc(
        (),
        "weight of each class in the loss, in the order of labels; of a multilabel that of the "
        "rows which have the label. `balanced`: rows / (classes x rows of the class); of a "
        "multilabel rows without the label / rows with it",
    )

    def task(self, name: str) -> Task:
        # YAML's true is the word true, as files write it.
        labels = (str(x).lower() if isinstance(x, bool) else str(x) for x in self.labels)
        return Task(
            name=name,
            text=(self.text,) if isinstance(self.text, str) else self.text,
            labels=tuple(map(canonical_label, labels)),
            class_weights=() if isinstance(self.class_weights, str) else self.class_weights,
            is_balanced=self.class_weights == "balanced",
            **{key: getattr(self, key) for key in SAME_IN_TASK},
        )

    @property
    def label_columns(self) -> tuple[str, ...]:
        return (self.label,) if isinstance(self.label, str) else self.label

    @property
    def train_files(self) -> dict[str, float]:
        """The training files with their weights."""
        if isinstance(self.train, dict):
            return self.train
        return {} if self.train is None else {self.train: 1.0}

    def files(self) -> dict[str, str]:
        """The file of each split; of several training files the first."""
        first = next(iter(self.train_files), None)
        files = {"train": first, "validation": self.validation, "test": self.test}
        return {split: file for split, file in files.items() if file is not None}

    @property
    def all_files(self) -> list[str]:
        return list(dict.fromkeys((*self.train_files, *self.files().values())))


class Augment(Strict):
    """Random changes to training rows, new in every pass; rows that are scored are unchanged."""

    word_dropout: Fraction = doc(0.0, "probability that a word is dropped; at least one word stays")
    swap: tuple[str, ...] = doc((), "pair tasks whose two texts are swapped in half of the rows")


class Stage(Strict):
    """A part of a run with its own rates, warm-up, decay and optimizer; the rest as in training."""

    steps: Count = Field(description="number of steps of this stage")
    frozen: bool = doc(False, "freeze the encoder in this stage, as `frozen+` does")
    tasks: tuple[str, ...] = doc((), "tasks that are trained; default: all")
    schedule: ScheduleName | None = doc(None, "default: as in training")
    learning_rate: Positive | None = doc(None, "default: as in training")
    head_learning_rate: Positive | None = doc(None, "default: as in training")
    lr_scheduler_type: Decay | None = doc(None, "over this stage; default: as in training")
    warmup_steps: NotNegative | None = doc(
        None, "a number, or a fraction of this stage below 1; default: as in training"
    )


class Training(Strict):
    """How a network is trained. Keys follow transformers' names where it has one."""

    pair: PairMode | dict[str, PairMode] = doc(
        "cross",
        "a pair as one sequence with a separator, or as two (`bi`): a word, or one per task",
    )
    pool: Pool = doc("mean", "how a sequence becomes one vector")
    features: Annotated[tuple[Feature, ...], Field(min_length=1)] = doc(
        ("difference", "product"),
        f"input of a head for a bi pair: {', '.join(FEATURES)}, one or more",
    )
    head: str | dict[str, Any] = doc("linear", "linear, mlp, cosine; its settings; or one per task")
    max_length: Annotated[int, Field(ge=3)] = doc(
        256, "tokens of a sequence; longer ones are truncated"
    )
    num_train_epochs: Positive = doc(3, "an epoch is a pass over the largest task")
    steps_per_epoch: Count | None = doc(None, "length of an epoch, instead of a pass")
    max_steps: Count | None = doc(None, "total number of steps, instead of epochs")
    per_task_batch_size: Count | dict[str, Count] = doc(
        16,
        "rows of a task in a step that trains it: a number, or one per task; a step of `mixed` "
        "has their sum",
    )
    learning_rate: Positive = doc(5e-5, "learning rate of the encoder")
    head_learning_rate: Positive = doc(1e-3, "learning rate of heads and late layers")
    layer_decay: Annotated[float, Field(gt=0, le=1)] = doc(
        1.0, "factor on the rate for each layer further from the top"
    )
    lr_scheduler_type: Decay = doc("linear", "decay of the learning rates")
    warmup_steps: NotNegative = doc(
        0.1, "warm-up steps: a number, or a fraction of all steps below 1"
    )
    weight_decay: NotNegative = doc(0.01, "decoupled weight decay; not on biases and norms")
    adam_epsilon: Positive = doc(1e-6, "AdamW's epsilon")
    max_grad_norm: NotNegative = doc(1.0, "clipping; 0: none")
    label_smoothing: Fraction = doc(
        0.0, "part of a class label's probability that is spread evenly over all classes"
    )
    teachers: tuple[str, ...] = doc(
        (), "folders of trained models; their mean answer to a training row is part of its label"
    )
    teacher_weight: Annotated[float, Field(gt=0, le=1)] = doc(
        0.5, "the teachers' part of a label; the rest is the label of the file"
    )
    ema: Fraction = doc(
        0.0, "decay of a moving average of the weights, which is what is scored and saved; 0: none"
    )
    r_drop: NotNegative = doc(
        0.0,
        "R-Drop: each row is read twice, with different dropout, and the loss gets half of this "
        "weight times the divergence of the two answers; 0: read once",
    )
    dropout: Fraction = doc(0.1, "dropout of the encoder")
    head_dropout: Fraction = doc(0.1, "dropout before and inside the heads")
    schedule: ScheduleName = doc(
        "together",
        "the next task. `together`: a batch of every task in each step; `in-turn`: "
        "one task's pass after the other; `mixed`: batches from the shuffled rows of all tasks; "
        "the others choose one task a step. `round-robin`: in turn; `staggered`: the largest task "
        "alone, then round-robin; drawn with probability proportional to rows^a: `random` a = 0, "
        "`sqrt` a = 0.5, `proportional` a = 1, `temperature` a = 1/T, `annealed` a from 1 in the "
        "first epoch to 0.2 in the last",
    )
    temperature: Positive = doc(
        2.0, "T of `schedule: temperature`; 1 draws by size, a large T uniformly"
    )
    staggered_share: Fraction = doc(
        0.25, "fraction of steps for the largest task alone in `schedule: staggered`"
    )
    task_steps: dict[str, Count] = doc({}, "maximum number of batches by task")
    train_tasks: tuple[str, ...] = doc((), "trained tasks; others are only scored; default: all")
    stages: tuple[Stage, ...] = doc(
        (), "parts of the run, one after the other, instead of max_steps and epochs"
    )
    augment: Augment | None = doc(None, "changes to training rows; default: none")
    loss_weights: dict[str, NotNegative] | str = doc(
        {},
        "weight of each task's loss by name (default 1; 0: not trained), "
        f"or a method: {', '.join(LOSS_WEIGHTS)}",
    )
    dwa_steps: Count | None = doc(
        None,
        "steps between updates of `loss_weights: dwa`; "
        "default: an epoch or a tenth of all steps, the smaller",
    )
    gradients: str = doc(
        SUM,
        "how the tasks' gradients on shared weights are combined: "
        f"{', '.join((SUM, *AGGREGATORS))}",
    )
    eval_steps: Count | Annotated[float, Field(gt=0, lt=1)] | None = doc(
        None, "steps between evaluations: a number, or a fraction of all steps; default: epoch"
    )
    save_steps: Count | None = doc(None, "steps between checkpoints; default: 1 min")
    early_stopping: Count | None = doc(None, "evaluations without improvement before the run stops")
    best_by: Literal["overall", "overall_normalised"] = doc(
        "overall", "the score on the validation rows that chooses the best state"
    )
    folds: Annotated[int, Field(ge=2, strict=True)] | None = doc(
        None,
        "k-fold cross-validation, for few rows: so many trainings, each judging the part of the "
        "rows that it did not see, in place of `split`",
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = doc(11711, "random seed")
    threads: Count | None = doc(None, "CPU threads; default: the number of cores")
    device: str = doc("auto", "auto, cpu, cuda, cuda:1, mps, ...")
    bf16: bool | Literal["auto"] = doc(
        False,
        "compute the encoder's matrix products of a training step in bfloat16; `auto`: where "
        "a trial product is safe and faster. Predictions are always in float32",
    )
    torch_compile: bool = doc(False, "compile the feed-forward blocks")
    report_to: Literal["none", Tracker] | tuple[Tracker, ...] = doc(
        "none", "tensorboard, mlflow, wandb, or a list; no effect on training"
    )

    @property
    def trackers(self) -> tuple[str, ...]:
        """The names in `report_to`, each once."""
        names = (self.report_to,) if isinstance(self.report_to, str) else self.report_to
        return tuple(name for name in dict.fromkeys(names) if name != "none")

    def batch_size(self, task: str) -> int:
        sizes = self.per_task_batch_size
        return sizes[task] if isinstance(sizes, dict) else sizes

    def weight(self, task: str) -> float:
        """The weight of the task's loss; a task of weight 0 is not trained."""
        given = self.loss_weights
        return given.get(task, 1.0) if isinstance(given, dict) else 1.0

    def learns(self, task: str) -> bool:
        return self.weight(task) > 0 and task in (self.train_tasks or (task,))

    def in_stage(self, stage: Stage) -> Self:
        """The settings of a stage: its own keys, and these for the rest."""
        own = stage.model_dump(exclude={"steps", "frozen", "tasks"}, exclude_none=True)
        own["train_tasks"] = stage.tasks or self.train_tasks
        return self.model_copy(update={**own, "max_steps": stage.steps, "stages": ()})

    def reading(self, tasks: dict[str, Task]) -> Reading:
        heads = {name: head_shape(self.head, name, tasks) for name in tasks}
        same = {key: getattr(self, key) for key in ("pair", "pool", "features", "max_length")}
        return Reading(heads=heads, **same)


def head_shape(given: str | dict[str, Any], name: str, tasks: dict[str, Task]) -> HeadShape:
    """The head of one task: one setting for all, or a mapping by task name."""
    where = "training.head"
    if isinstance(given, dict) and set(given) <= set(tasks):
        where, given = f"{where}.{name}", given.get(name, "linear")
    data = {"kind": given} if isinstance(given, str) else given
    head = to_value(HeadShape, data, where=where, error=RecipeError)
    if head.kind == "cosine" and not tasks[name].kind.has_cosine:
        raise RecipeError(
            f"training.head: a cosine head needs a similarity, {name!r} is a {tasks[name].type}; "
            "give heads per task, as {" + name + ": linear}"
        )
    return head
