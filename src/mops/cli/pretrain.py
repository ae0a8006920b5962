"""`mops pretrain`"""

from pathlib import Path
from typing import Any

import click

from mops.api.progress import TrainingScreen, print_warnings
from mops.cli.options import COUNT, DEVICE, JSON, PATH, SEED, read_recipe, source_options
from mops.cli.screen import OUT, echo, echo_yaml, print_table, respond
from mops.tables import format_seconds
from mops.training.machine import keep_freed_memory
from mops.training.pretrain import BATCH_SIZE, Pretrained, pretrain, pretraining_settings
from mops.yaml_io import format_yaml

MEANING = {
    "start": "before the first step",
    "end": "the encoder that is written",
}


@click.command()
@source_options
@SEED
@DEVICE
@click.option("--max-steps", type=COUNT, help="Total steps, instead of epochs.")
@click.option("--batch-size", type=COUNT, default=BATCH_SIZE, help="Texts per step.")
@click.option("--out", type=PATH, required=True, help="Folder of the new encoder.")
@click.option("--dry-run", is_flag=True, help="Print the settings and exit.")
@JSON
def command(out: Path, batch_size: int, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Continue masked-language-model pretraining on the tasks' texts.

    Uses only texts of training splits that do not occur in a validation or test file. The folder
    holds an encoder for --encoder, which transformers can read too, and pretrain.json with the
    held-out perplexity at the start and at the end. To resume an interrupted run, give the same
    command again.

    \b
    Example:
      mops pretrain --data sample --max-steps 200 --out encoders/sample
      mops train --data sample --encoder encoders/sample --out runs/pretrained
    """
    recipe = read_recipe(**options)
    if dry_run:
        settings = pretraining_settings(recipe, batch_size)
        return echo_yaml(format_yaml(settings))
    keep_freed_memory()
    with TrainingScreen("pretrain") as screen:
        made = pretrain(recipe, out, batch_size=batch_size, watcher=screen)
    return respond(as_json, made.record, show, made)


def show(made: Pretrained) -> None:
    if made.was_finished:
        echo(f"{made.folder} already holds this encoder; nothing to do")
    record = made.record
    texts, info = record["texts"], record["train_info"]
    print_table(
        "held-out perplexity",
        ["state", "step", "loss", "perplexity", ""],
        [
            [name, str(at["step"]), f"{at['loss']:.4f}", f"{at['perplexity']:.2f}", MEANING[name]]
            for name, at in record["held_out"].items()
        ],
        f"on {texts['report_words']:,} masked words of {texts['report']:,} texts that were used "
        "neither for training nor for selection; the masks are the same each time",
    )
    OUT.print(
        f"{texts['train']:,} training texts; left out: "
        f"{texts['left_out_as_in_validation_or_test']:,} that occur in a validation or test file, "
        f"{texts['held_out']:,} held out, {texts['left_out_as_partner_of_held_out']:,} paired "
        "with those"
    )
    OUT.print(
        f"{info['steps']} steps, {info['passes']:.2f} passes, "
        f"{format_seconds(info['train_seconds'])} of training; head: {record['head']}"
    )
    print_warnings(record["warnings"])
    echo(f"encoder  {made.folder}\nrecord   {made.folder / 'pretrain.json'}")
