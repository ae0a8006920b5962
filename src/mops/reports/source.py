"""The source of a report: the results of a survey or run, and the files of its trials."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mops.config.recipe import Recipe, to_recipe
from mops.errors import MopsError, RunError, UsageError
from mops.evaluate.evaluate import PredictionRows, read_predictions
from mops.plans.layout import Layout
from mops.plans.shapes import EncoderShape
from mops.record import Record, read_curve, read_record
from mops.surveys.design import Survey, read_survey
from mops.surveys.results.judge import judge_run, read_judged
from mops.surveys.results.recommend import Decision, recommend
from mops.surveys.results.results import Results, TrialResult
from mops.yaml_io import to_value

JUDGES = {"report": "the cross-fitted validation rows", "test": "the test rows"}


@dataclass(frozen=True)
class TrialFiles:
    candidate: str
    result: TrialResult
    folder: Path
    record: Record

    @cached_property
    def recipe(self) -> Recipe:
        return to_recipe(dict(self.record.run_info.recipe), where=str(self.folder))

    @cached_property
    def curve(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(read_curve(self.folder / "curve.jsonl"))

    def predictions(self, task: str, on: str) -> Path:
        """The file with its predictions for the rows that judge."""
        return self.folder / "predictions" / f"{task}-{on}.csv"


def read_answers(
    trials: Iterable[TrialFiles], task: str, on: str
) -> tuple[dict[str, PredictionRows], list[str]]:
    """Candidate -> its predictions for the labelled rows that judge; who has none, and why."""
    answers: dict[str, PredictionRows] = {}
    left_out = []
    for trial in trials:
        path = trial.predictions(task, on)
        try:
            rows = read_predictions(path, trial.recipe.task_values()[task])
            needed = ("loss", "confidence") if rows.task.answer.has_labels else ("loss",)
            if not len(rows.targets) or not rows.columns.keys() >= set(needed):
                columns = " and ".join(needed)
                raise RunError(f"{path} has no labelled row that judges, or no {columns}")
            first = next(iter(answers), trial.candidate)
            if rows.digest != answers.get(first, rows).digest:
                raise RunError(f"its rows differ from those of {first}")
            answers[trial.candidate] = rows
        except RunError as error:
            left_out.append(f"{trial.candidate}: {error}")
    return answers, left_out


@dataclass(frozen=True)
class Source:
    """Everything a report is made from; tables, figures and page are functions of it."""

    folder: Path
    survey: Survey | None  # the design; None for a single run
    results: Results
    decision: Decision | None  # None while no trial is finished
    trials: tuple[TrialFiles, ...]  # by candidate, then by seed

    @property
    def headline(self) -> Sequence[str]:
        """The decision, then notes on it."""
        return self.decision.lines if self.decision else ["No trial is finished yet."]

    @property
    def roles(self) -> Mapping[str, str | None]:
        """Role -> the candidate that has it."""
        return {
            "recommended": self.decision.candidate if self.decision else None,
            "baseline": self.results.baseline,
            "a model per task": self.results.single,
        }

    @property
    def main_candidates(self) -> list[str]:
        """The candidates with a role, as far as they exist."""
        names = dict.fromkeys(self.roles.values())
        return [name for name in names if name and name in self.results]

    def trials_of(self, candidate: str) -> tuple[TrialFiles, ...]:
        return tuple(trial for trial in self.trials if trial.candidate == candidate)

    def same_seed_trials(self, candidates: Iterable[str]) -> dict[str, TrialFiles]:
        """One trial per candidate: of the first seed that all have, otherwise of its own first."""
        known = {name: trials for name in candidates if (trials := self.trials_of(name))}
        for seed in self.results.seeds:
            same = [t for trials in known.values() for t in trials if t.result.seed == seed]
            if len(same) == len(known):
                return {trial.candidate: trial for trial in same}
        return {name: trials[0] for name, trials in known.items()}

    def compared_trials(self, task: str, most: int) -> dict[str, TrialFiles]:
        """Of candidates that learnt a task: those with a role first, then the best scores."""
        names = [one.name for one in self.results.candidates if task in one.tasks]
        ranked = dict.fromkeys((*self.main_candidates, *names))
        known = [name for name in ranked if name in names and self.trials_of(name)]
        return self.same_seed_trials(known[:most])

    @property
    def records(self) -> Mapping[str, Record]:
        """Candidate -> the record of one of its trials."""
        return {trial.candidate: trial.record for trial in self.trials}

    @cached_property
    def layouts(self) -> Mapping[str, Layout]:
        """Candidate -> layout, from the records alone; without those whose plan file is gone."""
        layouts: dict[str, Layout] = {}
        for trial in (trial for trial in self.trials if trial.candidate not in layouts):
            with suppress(MopsError):
                facts = dict(trial.record.meta_info.encoder_shape)
                shape = to_value(EncoderShape, facts, where="encoder_shape", error=UsageError)
                layouts[trial.candidate] = trial.recipe.layout(trial.recipe.task_values(), shape)
        return layouts


def read_source(folder: Path) -> Source:
    if (folder / "survey.yaml").is_file():
        survey, results = read_survey(folder / "survey.yaml"), read_judged(folder)
    elif (folder / "record.json").is_file():
        survey, results = None, judge_run(folder)
    else:
        raise UsageError(
            f"{folder} is neither a survey (survey.yaml) nor a finished run (record.json)"
        )
    trials = (
        TrialFiles(one.name, result, place, read_record(place / "record.json"))
        for one in results.candidates
        for result in one.trials
        for place in [results.run_folder(result)]
    )
    decision = recommend(results) if results.candidates else None
    return Source(folder, survey, results, decision, tuple(trials))
