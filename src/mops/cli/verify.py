"""`mops verify`"""

from pathlib import Path

import click

from mops.cli.options import JSON, PATH
from mops.cli.screen import print_table, respond
from mops.errors import RunError


@click.command()
@click.argument("model", type=PATH)
@JSON
def command(model: Path, as_json: bool) -> None:
    """Check every file of a trained model against its manifest.

    MODEL is the folder `model` of a run or an exported one. Its manifest.json lists the size and
    the SHA-256 of every file; a file that was changed, removed or added fails. The manifest shows
    damage. It does not show who wrote the model: compare its own SHA-256, which is printed, with
    that of its author, or sign the folder (SECURITY.md).

    \b
    Example:
      mops verify runs/first/model
    """
    from mops.files import file_digest
    from mops.predict.manifest import MANIFEST, verify

    listed, problems = verify(model)
    facts = {
        "files": listed,
        "manifest_sha256": file_digest(model / MANIFEST),
        "problems": problems,
    }
    rows = [[name, f"{own['size']:,}", own["sha256"]] for name, own in listed.items()]
    note = f"SHA-256 of {MANIFEST}: {facts['manifest_sha256']}"
    respond(as_json, facts, print_table, str(model), ["file", "bytes", "SHA-256"], rows, note)
    if problems:
        raise RunError(f"{model} is not as it was written: {'; '.join(problems)}")
