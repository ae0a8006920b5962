"""`mops recommend`"""

import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import mops
from mops.api.results import SCORES, SUREST
from mops.cli.options import JSON, NUMBER, PATH, SIZE, TIME
from mops.cli.screen import OUT, print_decision, respond
from mops.errors import UsageError
from mops.surveys.results.recommend import CHEAPEST, SURE, WORTH


def parse_weights(text: str) -> dict[str, float]:
    """`sentiment=2,similarity=1` as numbers by task."""
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


@click.command()
@click.argument("folder", metavar="DIR|FILE", type=PATH)
@click.option("--max-params", metavar="N", callback=NUMBER,
              help="At most so many parameters, as 40M.")  # fmt: skip
@click.option("--max-latency", metavar="TIME", callback=TIME,
              help="Of one request to all tasks, as 20ms.")  # fmt: skip
@click.option("--max-train-time", metavar="TIME", callback=TIME,
              help="Of the training steps, as 15m.")  # fmt: skip
@click.option("--max-memory", metavar="SIZE", callback=SIZE, help="Peak of a training, as 2GB.")
@click.option(
    "--weights", metavar="TASK=N,...", type=parse_weights,
    help="What each task counts, as sentiment=2,similarity=1; others count 1.",
)  # fmt: skip
@click.option("--worth", type=click.FloatRange(min=0), default=WORTH,
              help="How much overall score a cheaper plan may cost.")  # fmt: skip
@click.option("--sure", type=click.FloatRange(*SUREST), default=SURE,
              help="The probability that it costs no more.")  # fmt: skip
@click.option("--cheapest", type=click.Choice(list(CHEAPEST)), default="parameters",
              help="What cheap means; tm is score by time and memory.")  # fmt: skip
@click.option("--score", type=click.Choice(SCORES), default="overall",
              help="The score to decide by; overall_soft has the mean probability of the right "
                   "class in place of accuracies.")  # fmt: skip
@JSON
def command(folder: Path, as_json: bool, **rule: Any) -> None:
    """Say which plan of a finished survey to use, how sure that is, and why.

    DIR is the folder of a survey, FILE a packed one. Among the candidates within the limits, the
    cheapest is chosen that is within --worth of the best with probability --sure. If there is none,
    the one with the smallest expected loss is named as not decided. Exit code 1 if no candidate
    meets the limits.

    \b
    Example:
      mops recommend surveys/first --worth 0.02 --max-params 40M --max-latency 20ms
    """
    decision = mops.recommend(folder, **rule)
    respond(as_json, asdict(decision), show, decision)
    if decision.candidate is None:
        sys.exit(1)


def show(decision: mops.Decision) -> None:
    print_decision(decision)
    if decision.model:
        OUT.print(
            f"its model (the seed with the best validation score): {decision.model}",
            soft_wrap=True,
        )
        OUT.print(f"try it:  mops predict {decision.model} INPUT.csv", soft_wrap=True)
    elif decision.trial is not None:
        OUT.print(f"its model was not kept; train it again: trial {decision.trial}", soft_wrap=True)
