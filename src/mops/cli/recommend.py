"""`mops recommend`"""

from __future__ import annotations

import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mops.cli.main import echo_json
from mops.cli.options import JSON

if TYPE_CHECKING:
    from mops.surveys.results.recommend import Decision

COSTS = ("parameters", "latency", "train_time", "memory", "tm")  # of `recommend.CHEAPEST`


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--max-params", metavar="N", help="At most so many parameters, as 40M.")
@click.option("--max-latency", metavar="TIME", help="Of one request to all tasks, as 20ms.")
@click.option("--max-train-time", metavar="TIME", help="Of the training steps, as 15m.")
@click.option("--max-memory", metavar="SIZE", help="Peak of a training, as 2GB.")
@click.option(
    "--weights", metavar="TASK=N,...",
    help="What each task counts, as sentiment=2,similarity=1; others count 1.",
)  # fmt: skip
@click.option("--worth", type=click.FloatRange(min=0), default=0.01, show_default=True,
              help="How much overall score a cheaper plan may cost.")  # fmt: skip
@click.option("--sure", type=click.FloatRange(0.5, 0.99), default=0.8, show_default=True,
              help="The probability that it costs no more.")  # fmt: skip
@click.option("--cheapest", type=click.Choice(COSTS), default="parameters", show_default=True,
              help="What cheap means; tm is score by time and memory.")  # fmt: skip
@JSON
def command(
    folder: Path,
    as_json: bool,
    weights: str | None,
    worth: float,
    sure: float,
    cheapest: str,
    **limits: str | None,
) -> None:
    """Say which plan of a finished survey to use, how sure that is, and why.

    DIR is the folder of a survey. Among the candidates within the limits, the cheapest is chosen
    that is within --worth of the best with probability --sure. If there is none, the one with the
    smallest expected loss is named as not decided. Exit code 1 if no candidate meets the limits.

    \b
    Example:
      mops recommend surveys/first --worth 0.02 --max-params 40M --max-latency 20ms
    """
    from mops.surveys.results.recommend import recommend
    from mops.surveys.results.results import read_results

    decision = recommend(
        read_results(folder),
        worth=worth,
        sure=sure,
        cheapest=cheapest,
        weights=parse_weights(weights) if weights else {},
        **read_limits(limits),
    )
    model = folder / "trials" / str(decision.trial) / "model"
    if as_json:
        echo_json({**asdict(decision), "model": str(model) if model.is_dir() else None})
    else:
        show(decision, model)
    if decision.candidate is None:
        sys.exit(1)


def parse_weights(text: str) -> dict[str, float]:
    """`sentiment=2,similarity=1` as numbers by task."""
    from mops.errors import UsageError

    pairs = [part.partition("=") for part in text.split(",")]
    try:
        weights = {task.strip(): float(number) for task, _, number in pairs}
    except ValueError:
        weights = {"": -1.0}
    if not all(0 <= weight < math.inf for weight in weights.values()):
        raise UsageError(
            f"--weights {text!r}: write TASK=NUMBER,TASK=NUMBER with numbers from 0 on, "
            "for example sentiment=2,similarity=1"
        )
    return weights


def read_limits(given: dict[str, str | None]) -> dict[str, float]:
    from mops.units import BYTES, COUNTS, SECONDS, parse_amount

    units = {
        "max_params": COUNTS,
        "max_latency": SECONDS,
        "max_train_time": SECONDS,
        "max_memory": BYTES,
    }
    return {
        name: parse_amount(text, units[name], f"--{name.replace('_', '-')}")
        for name, text in given.items()
        if text is not None
    }


def show(decision: Decision, model: Path) -> None:
    from mops.cli.screen import OUT
    from mops.cli.survey_screen import print_decision

    print_decision(decision)
    if model.is_dir():
        OUT.print(f"its model (the seed with the best validation score): {model}", soft_wrap=True)
        OUT.print(f"try it:  mops predict {model} INPUT.csv", soft_wrap=True)
    elif decision.trial is not None:
        OUT.print(f"its model was not kept; train it again: trial {decision.trial}", soft_wrap=True)
