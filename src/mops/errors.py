"""The exceptions of mops.

MopsError
├── UsageError          wrong use: nothing was started (exit 2)
│   ├── RecipeError     a recipe, an option or a key
│   ├── PlanError       a sharing plan
│   ├── DataError       a data file or a row in it
│   └── EncoderError    a folder of pretrained weights, or a bundle
└── RunError            a run that started and failed (exit 1)
    ├── GuardError      a guard found that the result would be meaningless
    └── OutputError     a model whose outputs are not finite numbers

Every message is one line: what is wrong, what was found, what is allowed, what to do.
"""

import difflib
from collections.abc import Iterable, Sequence


class MopsError(Exception):
    """An error that is shown as one line instead of a traceback."""

    exit_code = 1


class UsageError(MopsError):
    """Wrong use; nothing was started and nothing was changed."""

    exit_code = 2


class RecipeError(UsageError):
    """A recipe, an option or a key is invalid."""


class PlanError(UsageError):
    """A sharing plan is invalid or does not fit the encoder or the tasks."""


class DataError(UsageError):
    """A data file or rows in it cannot be used."""


class EncoderError(UsageError):
    """A folder of weights cannot be used."""


class RunError(MopsError):
    """A run started and could not finish."""


class GuardError(RunError):
    """A guard stopped the run because its result would be meaningless."""


class OutputError(RunError):
    """A model gave no number for some rows: its weights are damaged, or have diverged."""

    def __init__(self, task: str, rows: Sequence[int], where: str = "") -> None:
        super().__init__(
            f"task {task!r}: the output for {where or f'row {rows[0] + 1}'} is not a finite "
            "number, so there is no answer; the weights are damaged or the training has diverged: "
            "train again with a lower learning rate, or fetch the model again"
        )
        self.task, self.rows = task, rows


def nearest(word: str, known: Iterable[str]) -> str:
    """' Did you mean X?' for the known word nearest to `word`; empty when none is near."""
    matches = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {matches[0]!r}?" if matches else ""
