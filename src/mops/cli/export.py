"""`mops export`"""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mops.cli.eval import find_entries
from mops.cli.options import DATA, PATH
from mops.cli.screen import echo
from mops.data.dataset import read_task, shared_files
from mops.data.splits import Row
from mops.errors import UsageError

if TYPE_CHECKING:
    from mops.predict.bundle import Bundle

FORMATS = {  # name -> what it writes; each is a module of mops.export with `export_bundle`
    "hf": "a folder per task for transformers, or sentence-transformers",
    "onnx": "one graph of all tasks for ONNX Runtime",
}


@click.command()
@click.argument("model", type=PATH)
@click.option(
    "--to", "name", type=click.Choice(list(FORMATS)), required=True,
    help="; ".join(f"{name}: {about}" for name, about in FORMATS.items()) + ".",
)  # fmt: skip
@click.option("--out", required=True, type=PATH, help="Folder to write.")
@click.option("--int8", "is_int8", is_flag=True,
              help="onnx: the encoder's weights in 8 bits; the change of every score on the "
              "validation rows is measured.")  # fmt: skip
@click.option("--max-loss", default=0.01, type=click.FloatRange(min=0),
              help="int8: refuse if a task's score falls by more.")  # fmt: skip
@click.option("--force", is_flag=True, help="int8: write whatever the loss is.")
@DATA
def command(
    model: Path, name: str, out: Path, is_int8: bool, max_loss: float, force: bool, data: str | None
) -> None:
    """Write a trained model for other tools.

    hf: OUT/TASK holds config, weights, tokenizer and a card. LoRA, LHUC, task vectors and bias
    plans are merged into the weights. `AutoModelForSequenceClassification` loads it and gives the
    same logits: as a stock BERT for pool `pooler` or `cls` with a linear head, else (pool `mean`,
    late layers, mlp, texts of a pair apart) with trust_remote_code=True and the file
    modeling_mops.py in the folder, because no class of transformers pools a BERT by mean. A label
    of a multilabel is given where its logit > 0. `AutoModelForTokenClassification` loads a tagging
    task. A cosine head becomes a SentenceTransformer. PALs, bottlenecks, low-rank functions,
    experts and feeds cannot be expressed and are refused.

    onnx: OUT has the graph model.onnx and its weights, with tokenizer, tasks, plan and card. The
    outputs are checked against torch. `mops predict`, `eval` and `serve` take the folder in place
    of MODEL. With --int8 an answer depends slightly on the texts that are computed with it, because
    activations have one scale per batch.

    \b
    Example:
      mops export runs/first/model --to hf --out exported
      mops export runs/first/model --to onnx --int8 --out small
      mops predict small reviews.csv
    """
    from mops.predict.bundle import load_bundle

    if is_int8 and name != "onnx":
        raise UsageError("--int8 goes with --to onnx")
    try:
        module = importlib.import_module(f"mops.export.{name}")
    except ModuleNotFoundError as cause:
        raise UsageError(
            f"mops export --to {name} needs {cause.name}, not installed here; "
            f"pip install 'mops-nlp[{name}]'"
        ) from cause
    bundle = load_bundle(model)
    if is_int8:
        rows = read_validation(bundle, data)
        folders = module.export_int8(bundle, out, rows, math.inf if force else max_loss)
    else:
        folders = module.export_bundle(bundle, out)
    for folder in folders:
        echo(folder)


def read_validation(bundle: Bundle, data: str | None) -> dict[str, tuple[Row, ...]]:
    """The labelled validation rows of every task."""
    rows, entries = {}, find_entries(bundle, data, None)
    shared = shared_files(entries)
    for name, entry in entries.items():
        splits = read_task(entry, bundle.layout.tasks[name], ("validation",), shared.get(name))[1]
        rows[name] = splits["validation"].labelled
    return rows
