"""A paper as data, read from a YAML file in this folder, and our results that stand for its models.

Tables and findings name models and measures. A model is in the file under `models`, or it is the
short form of a plan. A measure is a task, `overall`, `overall_normalised`, `seconds` (of training),
`parameters`, `tm` (score per time and memory), or `task.metric`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from statistics import mean
from typing import Any

from mops.errors import UsageError, nearest
from mops.evaluate.cost import FLOAT_BYTES
from mops.evaluate.joint import Joint
from mops.evaluate.metrics import EQUAL, OVERALL
from mops.record import Record
from mops.surveys.expansion import value_at
from mops.surveys.results.results import CandidateResult, Results
from mops.yaml_io import read_own_yaml, to_value

NAMES = ("mops", "milestone", "hybrid", "progressive", "pals")
TASKS = ("sentiment", "paraphrase", "similarity")  # of all five papers; ours have the same names
METRICS = {"similarity": "pearson"}  # other tasks: accuracy
TOLERANCE = 0.05  # relative, between two settings: papers print two digits


@dataclass(frozen=True)
class PaperModel:
    """Which of our candidates stands for a model of the paper; settings are by dotted key."""

    plan: str  # short form; {half} is half of the encoder's depth
    needs: Mapping[str, Any] = field(default_factory=dict)  # required settings
    unlike: Mapping[str, Any] = field(default_factory=dict)  # every candidate with other settings
    prefer: Mapping[str, Any] = field(default_factory=dict)  # chooses between several candidates


@dataclass(frozen=True)
class PaperRow:
    """A row as printed; the keys are measures."""

    label: str
    model: str
    numbers: Mapping[str, int | float]
    models: Mapping[str, str] = field(default_factory=dict)  # columns with another model
    should: Mapping[str, float] = field(default_factory=dict)  # what a wrong number should be
    split: str = "validation"


@dataclass(frozen=True)
class PaperTable:
    """One table, or some of its columns."""

    name: str  # file stem
    title: str
    columns: Mapping[str, str]  # measure -> its name in the paper
    rows: tuple[PaperRow, ...]
    note: str
    assessment: str  # what the paper got right or wrong, in a sentence


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A finding as the paper states it, and the comparisons in our results that test it."""

    text: str
    measures: tuple[str, ...]
    contrasts: tuple[tuple[str, ...] | Mapping[str, float], ...]  # a minus b, or weighted models
    above: float = 0.0  # the claim; a ratio minus 1 for times, parameters and TM
    below: float | None = None
    claimed: tuple[float | None, ...] = ()  # by the paper: each contrast in each measure
    hold: int | None = None  # how many of the comparisons must hold; None: all


@dataclass(frozen=True, kw_only=True)
class Paper:
    name: str
    title: str
    source: str
    surveys: tuple[str, ...]  # named experiments that repeat it
    models: Mapping[str, PaperModel] = field(default_factory=dict)
    tables: tuple[PaperTable, ...]
    findings: tuple[Finding, ...]
    differences: tuple[str, ...]  # from any survey of ours, and errors of the paper


@cache
def read_paper(name: str) -> Paper:
    """A paper; its `tm` is the printed TM divided by that of the table's first row."""
    if name not in NAMES:
        raise UsageError(f"no paper {name!r}; there are {', '.join(NAMES)}.{nearest(name, NAMES)}")
    path = Path(__file__).with_name(f"{name}.yaml")
    data = read_own_yaml(path)
    for table in data["tables"]:
        measures = table.pop("numbers")
        for row in table["rows"]:
            numbers = row["numbers"] = dict(zip(measures, row["numbers"], strict=False))
            if printed := numbers.get("tm_printed"):
                numbers["tm"] = round(printed / table["rows"][0]["numbers"]["tm_printed"], 3)
    return to_value(Paper, data, where=str(path), error=UsageError)


@dataclass(frozen=True)
class OurResults:
    """A survey, one record of each candidate (for what does not vary), and a paper's models."""

    results: Results
    records: Mapping[str, Record]
    models: Mapping[str, PaperModel]

    @cached_property
    def joints(self) -> list[dict[str, Joint]]:
        """Of each group; overall scores are over the papers' tasks where a group has one."""
        groups = self.results.groups
        weights = [{task: float(task in TASKS) for task in group.rows} for group in groups]
        return [
            self.results.joint(group, own if any(own.values()) else EQUAL)
            for group, own in zip(groups, weights, strict=True)
        ]

    def find(self, name: str) -> list[CandidateResult]:
        """The candidate that stands for a model, or every one with other settings than `unlike`.

        Of several it is the baseline or the first of the survey: the best would be a choice.
        """
        model = self.models.get(name, PaperModel(name))
        shapes = [record.meta_info.encoder_shape for record in self.records.values()]
        half = next((int(shape["depth"]) // 2 for shape in shapes if "depth" in shape), "half")
        needs = {"plan": model.plan.format(half=half), "training.train_tasks": [], **model.needs}
        names = [name for group in self.results.groups for name in group.candidates]
        names.sort(key=lambda name: name != self.results.baseline)
        found = [c for c in map(self.results.__getitem__, names) if self.has(c, needs)]
        if model.unlike:
            return [c for c in found if not self.has(c, model.unlike)]
        for key, value in model.prefer.items():
            found = [c for c in found if self.has(c, {key: value})] or found
        return found[:1]

    def has(self, candidate: CandidateResult, settings: Mapping[str, Any]) -> bool:
        """Whether its recipe has these; Adam's updates depend on the ratios of weights alone."""
        record, weights = self.records.get(candidate.name), candidate.loss_weights
        total = sum(weights.values()) or 1.0
        recipe = {
            **(record.run_info.recipe if record else {}),
            **candidate.settings,
            "plan": candidate.plan,
            "training.learning_rate": candidate.learning_rate,
            **{f"training.loss_weights.{task}": w / total for task, w in weights.items()},
        }
        return all(agree(v, recipe.get(k, value_at(recipe, k))) for k, v in settings.items())

    def value(self, candidate: CandidateResult, measure: str, split: str) -> float | None:
        """In the unit of the papers; a score is the mean over seeds on the whole split.

        Tasks need not be trained. Overall scores are over the papers' three tasks. The size is
        that of a checkpoint: weights, and Adam's two moments of those that are trained.
        """
        costs, seconds = candidate.costs, candidate.costs.train_seconds
        size = (costs.weight_bytes + 2 * FLOAT_BYTES * costs.trained_parameters) / 1024_000
        epoch = mean(trial.train_info.best_epoch for trial in candidate.trials) - 1  # from 0
        plain = {"epoch": epoch, "seconds": seconds, "hours": seconds, "size": size}
        if measure in plain:
            return plain[measure]
        tasks = TASKS if measure in (*OVERALL, "tm") else (measure,)
        seeds = [candidate.values(t, split, METRICS.get(t, "accuracy")) for t in tasks]
        if not all(seeds):
            return None
        *others, last = map(mean, seeds)
        score = mean([*others, (last + 1) / 2 if measure == "overall_normalised" else last])
        return score / seconds / size if measure == "tm" else score


def agree(wanted: Any, setting: Any) -> bool:
    """Numbers within the tolerance; what is not set is false or empty."""
    if isinstance(wanted, float):
        return isinstance(setting, int | float) and math.isclose(wanted, setting, rel_tol=TOLERANCE)
    return bool(wanted == (setting or type(wanted)()))
