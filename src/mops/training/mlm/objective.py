"""What a pretraining is trained for: its settings, its phases and the masked-word objective."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from mops.config.recipe import Recipe
from mops.data.batches import Batch, TaskData
from mops.data.schedule import PlannedStage, Schedule
from mops.errors import UsageError
from mops.model.network import Network
from mops.training.checkpoint import TrainerState
from mops.training.mlm.corpus import Corpus, MaskedBatch
from mops.training.mlm.model import head_owner, held_out_losses, masked_loss, perplexity
from mops.training.objective import Evaluation

BATCH_SIZE = 32
START, CONTROL, TRAINING = "start", "control", "training"  # phases
WORDS = "words"  # the name of the loss
USED = (  # keys of `training` that count here
    "max_length", "num_train_epochs", "steps_per_epoch", "max_steps", "learning_rate",
    "head_learning_rate", "layer_decay", "lr_scheduler_type", "warmup_steps", "weight_decay",
    "adam_epsilon", "max_grad_norm", "dropout", "eval_steps", "save_steps", "early_stopping",
    "seed", "threads", "device",
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """A recipe, whose plan and labels do not count, and two numbers."""

    recipe: Recipe
    batch_size: int = BATCH_SIZE  # texts per step
    control_steps: int | None = None  # None: as many as training steps

    def __post_init__(self) -> None:
        for name, value, least in (
            ("batch size", self.batch_size, 1),
            ("number of control steps", self.control_steps or 0, 0),
        ):
            if value < least:
                raise UsageError(f"the {name} is {value}; it must be at least {least}")

    def to_data(self) -> dict[str, Any]:
        recipe = self.recipe.to_data()
        own = {"batch_size": self.batch_size, "control_steps": self.control_steps}
        return {
            "encoder": recipe["encoder"],
            "tasks": recipe["tasks"],
            "training": {key: recipe["training"][key] for key in USED if key in recipe["training"]},
            **{key: value for key, value in own.items() if value is not None},
        }


def plan_phases(settings: Settings, texts: int, *, is_new_head: bool) -> Schedule:
    """The control, then the training itself, as stages that count their own steps.

    A new head learns much in its first steps, whatever the encoder. So in the control the head
    learns alone, on the same texts, masks and rates, while the encoder is frozen; then the head is
    put back. What training reaches below the control is what the encoder has learned.
    """
    training = settings.recipe.training
    epoch = training.steps_per_epoch or math.ceil(texts / settings.batch_size)
    steps = training.max_steps or max(1, round(training.num_train_epochs * epoch))
    control = steps if settings.control_steps is None else settings.control_steps
    if not is_new_head:  # the rate of new weights would undo what the head has learned
        training = training.model_copy(update={"head_learning_rate": training.learning_rate})
    at_end = training.model_copy(update={"eval_steps": control})
    phases = (
        PlannedStage(0, control, at_end, is_frozen=True),
        PlannedStage(control, control + steps, training, counted_from=control),
    )
    return Schedule(
        steps=({},) * (control + steps),
        steps_per_epoch=epoch,
        sizes={},
        batch_sizes={},
        seed=training.seed,
        stages=tuple(phase for phase in phases if len(phase)),
    )


@dataclass(kw_only=True)
class MaskedWords:
    """The objective: guess masked words; the best state is that with the lowest held-out loss."""

    corpus: Corpus
    schedule: Schedule
    batch_size: int
    initial_head: Mapping[str, Tensor]
    data: Mapping[str, TaskData] = field(default_factory=dict)  # labels are not used
    logged: Sequence[str] = ("loss", "gradient_norm")

    def make_batch(self, step: int, tasks: Iterable[str] | None = None) -> Batch:
        number = self.schedule.stage_at(step).number(step)
        return self.corpus.batch(number, self.batch_size, self.schedule.seed)

    def losses(self, network: Network, batch: Batch) -> Mapping[str, Tensor]:
        assert isinstance(batch, MaskedBatch)
        return {WORDS: masked_loss(network, batch.sequences)}

    def enter_stage(
        self, network: Network, state: TrainerState, tell: Callable[[str], None]
    ) -> None:
        """Put the initial head back: what the control learned leaves no trace."""
        if state.step == self.schedule.stage_at(state.step).first:
            network.bank[head_owner(network)].load_state_dict(self.initial_head)

    def evaluate(self, network: Network, step: int) -> Evaluation:
        """The losses of both held-out halves; a state of the control is never the best."""
        losses = held_out_losses(network, self.corpus.held_out)
        is_control = self.position(step)["phase"] == CONTROL
        facts = {"held_out": losses, "perplexity": perplexity(losses["report"])}
        return Evaluation(None if is_control else -losses["selection"], facts)

    def position(self, step: int) -> Mapping[str, Any]:
        if step == 0:
            return {"phase": START, "step": 0}
        stage = self.schedule.stage_at(step - 1)
        return {"phase": CONTROL if stage.is_frozen else TRAINING, "step": stage.number(step)}
