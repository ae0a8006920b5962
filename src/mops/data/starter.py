"""The text of a starter recipe: what was decided about files, and why, as comments."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from mops.data.dataset import SPLITS
from mops.data.doubts import FEW_ROWS
from mops.data.inference import Proposal
from mops.data.tables import HUB
from mops.plans.catalog import DEFAULT, FIRST_LOOK

HEAD = """\
# A recipe for mops. Paths are relative to this file. All keys: docs/recipe.md
#   mops check --config THIS     validate the data, without training
#   mops train --config THIS     train the plan below
encoder: minilm            # bundled; or a folder with config.json + model.safetensors

tasks:                     # inferred from the files, with reasons: correct what is wrong
"""
TAIL = f"""
plan: {DEFAULT}               # `mops plans` lists the others: {", ".join(FIRST_LOOK[1:])}, ...

# `mops train` uses the settings of `--recipe good`; `--recipe fast` and `best` are the others.
# Settings of your own replace them:
# training:
#   num_train_epochs: 3      # or max_steps: 500
#   per_task_batch_size: 16
#   learning_rate: 5.0e-5    # of the encoder
"""
FOLDS = """\
#   folds: 5                 # for few rows ({task} has {rows}): all are judged, in five trainings
"""


def starter(tasks: Mapping[str, Proposal], skipped: Sequence[str], folder: Path) -> str:
    """The text of a recipe, with the reason for each line and what could be changed."""
    lines = []
    for name, proposal in tasks.items():
        lines.append(commented(f'  "{name}":', proposal.why.get("", "")))
        for key, value in proposal.entry.items():
            shown = value if key not in SPLITS else relative(value, folder.resolve())
            line = f"    {key}: {json.dumps(shown, ensure_ascii=False)}"
            lines.append(commented(line, proposal.why.get(key, "")))
        for key, (value, why) in proposal.maybe.items():
            lines.append(commented(f"    # {key}: {json.dumps(value, ensure_ascii=False)}", why))
    if skipped:
        lines += ["  # left out:\n", *(commented("  #  ", reason, "") for reason in skipped)]
    lines.append(TAIL)
    few = [(proposal.rows, name) for name, proposal in tasks.items() if proposal.rows is not None]
    rows, name = min(few, default=(FEW_ROWS + 1, ""))
    if rows <= FEW_ROWS and not any("validation" in proposal.entry for proposal in tasks.values()):
        lines.append(FOLDS.format(task=name, rows=rows))
    return HEAD + "".join(lines)


def relative(value: object, folder: Path) -> object:
    """A file, or several with their weights, as seen from the folder of the recipe."""
    if isinstance(value, dict):
        return {os.path.relpath(file, folder): weight for file, weight in value.items()}
    return value if str(value).startswith(HUB) else os.path.relpath(str(value), folder)


def commented(line: str, comment: str, sign: str = "  # ") -> str:
    """The line with a comment, which is free of line ends and of what YAML does not allow."""
    shown = "".join(char if char.isprintable() else " " for char in comment)
    return f"{line}{sign if shown else ''}{shown}\n"
