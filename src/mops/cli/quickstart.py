"""`mops quickstart`"""

from __future__ import annotations

from pathlib import Path

import click

from mops.cli.options import ENCODER, JSON, PATH
from mops.cli.survey import choose_executor, run
from mops.data.compose import SAMPLE, compose_recipe
from mops.surveys.experiments import named_survey

JOBS = 2  # processes with a thread each do more on two cores than one with two


@click.command()
@ENCODER
@click.option("--out", type=PATH, default=Path("surveys/quickstart"), show_default=True,
              help="Folder of the survey.")  # fmt: skip
@click.option("--steps", type=click.IntRange(min=1), help="Steps of each trial.")
@click.option("--plan", "plans", metavar="SHORT", multiple=True,
              help="A plan to compare. Repeatable.")  # fmt: skip
@JSON
def command(
    encoder: str | None, out: Path, steps: int | None, plans: tuple[str, ...], as_json: bool
) -> None:
    """Survey eight plans on the embedded data: scores, costs and a recommendation.

    Three tasks (sentiment, paraphrase, similarity), one small encoder, two seeds, some minutes, no
    network. It ends with the report of its survey. The same command resumes a survey that was
    stopped or killed.

    \b
    Example:
      mops quickstart
    """
    survey = named_survey("first-look", compose_recipe(data=SAMPLE, encoder=encoder))
    survey = survey.with_plans(plans) if plans else survey
    survey = survey.with_steps(steps) if steps else survey
    survey = survey.changed(name="quickstart", on="test")  # the sample's test files have labels
    run(survey, out, choose_executor("local", JOBS), jobs=JOBS, keep="best", as_json=as_json)
