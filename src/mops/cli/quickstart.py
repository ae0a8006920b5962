"""`mops quickstart`"""

from pathlib import Path
from typing import Any

import click

from mops.api.survey import make_executor, train_survey, vary
from mops.cli.options import COUNT, ENCODER, JSON, PATH
from mops.cli.survey import PLAN, show
from mops.data.compose import SAMPLE, compose_recipe
from mops.surveys.experiments import named_survey

JOBS = 2  # processes with a thread each do more on two cores than one with two


@click.command()
@ENCODER
@click.option("--out", type=PATH, default=Path("surveys/quickstart"), help="Folder of the survey.")
@click.option("--steps", "max_steps", type=COUNT, help="Steps of each trial.")
@PLAN
@JSON
def command(encoder: str | None, out: Path, as_json: bool, **variant: Any) -> None:
    """Survey six plans on the embedded data: scores, costs and a recommendation.

    Three tasks (sentiment, paraphrase, similarity), one small encoder, three seeds, some minutes,
    no network. It ends with the report of its survey. The same command resumes a survey that was
    stopped or killed.

    \b
    Example:
      mops quickstart
    """
    recipe = compose_recipe(data=SAMPLE, encoder=encoder)
    survey = vary(named_survey("first-look", recipe), **variant)
    survey = survey.changed(name="quickstart", on="test")  # the sample's test files have labels
    show(train_survey(survey, out, make_executor(JOBS)), as_json)
