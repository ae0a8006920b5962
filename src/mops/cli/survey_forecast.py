"""What a survey would be, before anything is trained."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from mops.cli.main import echo_json
from mops.cli.screen import OUT, duration, million, print_table
from mops.surveys.budget import Estimator

if TYPE_CHECKING:
    from mops.surveys.design import Survey


def print_forecast(survey: Survey, as_json: bool) -> None:
    """The candidates with their sizes and the estimated time."""
    forecast = Estimator().survey(survey)
    trials = survey.trials()
    if as_json:
        echo_json(
            {
                "survey": survey.to_data(),
                "candidates": [asdict(one) for one in forecast.candidates],
                "trials": [{"id": trial.id, "name": trial.name} for trial in trials],
                "encode_seconds": forecast.encode_seconds,
                "seconds": forecast.seconds,
            }
        )
        return
    rows = [
        [one.name, f"{one.steps:,}", million(one.parameters), million(one.trained),
         duration(one.seconds)]
        for one in forecast.candidates
    ]  # fmt: skip
    columns = ["candidate", "steps", "parameters", "trained", "a trial"]
    print_table(f"{survey.name}: {survey.source or 'a survey'}", columns, rows)
    once = forecast.encode_seconds
    OUT.print(
        f"{len(trials)} trials ({len(rows)} candidates x {len(survey.seeds)} seed(s)), about "
        f"{duration(forecast.seconds)} one after the other"
        + (f", of which {duration(once)} to encode texts once" if once else "")
        + f"; compared with {survey.baseline}; judged on {survey.on}",
        soft_wrap=True,
    )
