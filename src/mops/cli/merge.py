"""`mops merge`"""

from pathlib import Path

import click

from mops.cli.options import PATH
from mops.cli.screen import echo


@click.command()
@click.argument("first", type=PATH)
@click.argument("second", type=PATH)
@click.option("--out", type=PATH, required=True, help="Folder of the new model.")
def command(first: Path, second: Path, out: Path) -> None:
    """Make one model of two that share an encoder.

    FIRST and SECOND are folders `model` of runs. Weights that both plans share must be equal, bit
    for bit: two models that grew from one by `add-task`, or have the same frozen encoder.

    \b
    Example:
      mops merge runs/with-trec/model runs/with-subj/model --out models/both
    """
    from mops.predict.bundle import load_bundle
    from mops.predict.editing import merge_bundles

    layout = merge_bundles(load_bundle(first), load_bundle(second), out)
    echo(f"model   {out}: {', '.join(layout.tasks)}, {layout.parameters:,} parameters")
