"""A single run judged as a survey of one candidate, so that it can be reported like one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mops.config.recipe import to_recipe
from mops.errors import UsageError
from mops.record import Record, read_record
from mops.surveys.ledger import Candidate
from mops.surveys.results.results import Results, read_result
from mops.surveys.results.standings import Summary
from mops.surveys.results.summary import judge_results


@dataclass(frozen=True)
class Alone:
    """The design of a survey that compares nothing."""

    name: str
    candidate: Candidate
    on: str

    @property
    def baseline(self) -> str:
        return self.candidate.name

    @property
    def single(self) -> None:
        return None

    @property
    def seeds(self) -> Sequence[int]:
        return (self.candidate.recipe.training.seed,)

    def candidates(self) -> Sequence[Candidate]:
        return (self.candidate,)


def summarise_run(folder: Path) -> Summary:
    """The judged result of the run in a folder; nothing in it is changed."""
    record = read_record(folder / "record.json")
    recipe = to_recipe(dict(record.run_info.recipe))
    candidate = Candidate(record.run_info.plan, {}, recipe)
    alone = Alone(folder.resolve().name, candidate, judging_rows(record, folder))
    result = read_result(candidate.trial(recipe.training.seed), folder.resolve(), alone.on)
    return judge_results(alone, Results((result,), (), (), ()), {})


def judging_rows(record: Record, folder: Path) -> str:
    """The report half of validation, or the test files where there is no validation."""
    scored = record.scores.overall
    for on in ("report", "test"):
        if scored.get(on):
            return on
    raise UsageError(f"{folder}: no labelled row judges this run, nothing can be reported")
