"""`mops check`"""

from typing import Any

import click

import mops
from mops.api.progress import print_warnings
from mops.cli.options import JSON, STRICT, read_recipe, training_options
from mops.cli.screen import print_parts, respond
from mops.data.doubts import refuse_leaks


@click.command()
@training_options
@STRICT
@JSON
def command(strict: bool, as_json: bool, **options: Any) -> None:
    """Validate a recipe and its data without training.

    Shows for each task three parsed rows, counts and label balance per split, duplicates, overlap
    between splits, token lengths, truncation and the majority baseline; then the planned steps
    and passes, the size of the plan and an estimate of the training time. Warnings name leaks
    between splits and between tasks, and labels that look wrong; advice names settings for rare
    classes and few rows.

    \b
    Example:
      mops check --data sample
    """
    checked = mops.check(read_recipe(**options, default="good"))
    respond(as_json, checked.to_data(), show, checked)
    if strict:
        refuse_leaks(checked.leaks)


def show(checked: mops.Checked) -> None:
    print_parts(checked.described)
    print_warnings([*checked.notes, *checked.warnings])
    print_parts(checked.advised)
