"""What a report is made of: the judged result of a survey or of a run, and its trials' files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mops.config.recipe import Recipe, to_recipe
from mops.errors import MopsError, UsageError
from mops.evaluate.predictions import SPLIT_FILE
from mops.plans.layout import Layout, lay_out
from mops.plans.shapes import EncoderShape
from mops.record import Record, read_curve, read_record
from mops.surveys.design import Survey, read_survey
from mops.surveys.results.judge import judge_run, judge_survey
from mops.surveys.results.recommend import Decision, recommend
from mops.surveys.results.results import Results, TrialResult, read_results


@dataclass(frozen=True)
class TrialFiles:
    """A finished trial as it lies on the disk."""

    candidate: str
    facts: TrialResult
    folder: Path
    record: Record

    @cached_property
    def recipe(self) -> Recipe:
        return to_recipe(dict(self.record.run_info.recipe), where=str(self.folder))

    @cached_property
    def curve(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(read_curve(self.folder / "curve.jsonl"))

    def predictions(self, task: str, on: str) -> Path:
        """The file with its answers to the rows that judge."""
        return self.folder / "predictions" / f"{task}-{SPLIT_FILE[on]}.csv"


@dataclass(frozen=True)
class Material:
    """Everything a report shows; pages, tables and figures are functions of it."""

    folder: Path
    survey: Survey | None  # the design; a single run has none
    summary: Results
    decision: Decision | None  # none while no trial is finished
    trials: tuple[TrialFiles, ...]  # in the order of the standings, then of the seeds
    broken: tuple[str, ...]  # what could not be read, and why

    def of(self, candidate: str) -> tuple[TrialFiles, ...]:
        """The trials of a candidate whose files could be read."""
        return tuple(trial for trial in self.trials if trial.candidate == candidate)

    @property
    def records(self) -> Mapping[str, Record]:
        """Candidate -> the record of one of its trials."""
        return {trial.candidate: trial.record for trial in self.trials}

    @cached_property
    def layouts(self) -> Mapping[str, Layout]:
        """Candidate -> layout, from the records alone; without those whose plan file is gone."""
        layouts: dict[str, Layout] = {}
        for trial in (trial for trial in self.trials if trial.candidate not in layouts):
            try:
                shape = EncoderShape(**trial.record.meta_info.encoder_shape)  # type: ignore[arg-type]
                tasks = trial.recipe.task_values()
                reading = trial.recipe.training.reading(tasks)
                plan = trial.recipe.sharing_plan()
                layouts[trial.candidate] = lay_out(plan, list(tasks.values()), shape, reading)
            except (KeyError, TypeError, MopsError):
                continue
        return layouts


def read_material(folder: Path) -> Material:
    """The folder of a survey, or of a run."""
    if (folder / "survey.yaml").is_file():
        survey, summary = read_survey(folder / "survey.yaml"), read_judged(folder)
    elif (folder / "record.json").is_file():
        survey, summary = None, judge_run(folder)
    else:
        raise UsageError(
            f"{folder} is neither a survey (survey.yaml) nor a finished run (record.json)"
        )
    trials: list[TrialFiles] = []
    broken: list[str] = []
    finished = [(one.name, facts) for one in summary.candidates for facts in one.trials]
    for name, facts in finished:
        place = folder / "trials" / facts.id if survey else folder
        try:
            trials.append(TrialFiles(name, facts, place, read_record(place / "record.json")))
        except MopsError as error:
            broken.append(f"{name}, seed {facts.seed}: {error}")
    decision = recommend(summary) if summary.candidates else None
    return Material(folder, survey, summary, decision, tuple(trials), tuple(broken))


def read_judged(folder: Path) -> Results:
    """summary.json, or the survey judged again where a file is newer than that."""
    stored = folder / "summary.json"
    if stored.is_file() and not any(is_newer(path, stored) for path in judged_files(folder)):
        return read_results(stored)
    return judge_survey(read_survey(folder / "survey.yaml"), folder)


def judged_files(folder: Path) -> Iterator[Path]:
    """What a summary was made from."""
    yield from (folder / "survey.yaml", folder / "costs.json")
    for pattern in ("trials/*/record.json", "trials/*/predictions/*.csv", "failed/*.json"):
        yield from folder.glob(pattern)


def is_newer(path: Path, than: Path) -> bool:
    return path.is_file() and path.stat().st_mtime_ns > than.stat().st_mtime_ns
