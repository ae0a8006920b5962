"""A paper as data: its tables, its findings and its setting, read from a YAML file in this folder.

A file names its models once, under `models`; any other model name is the short form of a plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from mops.errors import UsageError, nearest
from mops.yaml_io import read_yaml, to_value

NAMES = ("mops", "milestone", "hybrid", "progressive", "pals")
TASKS = ("sentiment", "paraphrase", "similarity")  # of all five papers; ours have the same names


@dataclass(frozen=True)
class PaperModel:
    """Which of our candidates stands for a model of the paper."""

    plan: str  # short form; {half} is half of the encoder's depth
    needs: Mapping[str, Any] = field(default_factory=dict)  # required settings, by dotted key
    prefer: Mapping[str, Any] = field(default_factory=dict)  # chooses between several candidates
    trains: tuple[str, ...] = ()  # the only tasks that are trained; empty: all


Side = tuple[PaperModel, ...]  # one model, or several whose mean is meant
Pair = tuple[Side, Side]
Quantity = Literal["score", "gain", "best", "correlation", "time", "tm", "parameters"]


@dataclass(frozen=True)
class PaperRow:
    """A row as printed; the keys of its mappings are measures (`compare.TableFiller.value`)."""

    label: str
    model: PaperModel
    numbers: Mapping[str, int | float]
    models: Mapping[str, PaperModel] = field(default_factory=dict)  # columns with another model
    split: str = "validation"
    should: Mapping[str, float] = field(default_factory=dict)  # what a wrong number should be
    remark: str = ""


@dataclass(frozen=True)
class PaperTable:
    """One table, or some of its columns."""

    name: str  # file stem
    title: str
    columns: Mapping[str, str]  # measure -> its name in the paper
    rows: tuple[PaperRow, ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A finding as the paper states it, and the claim about our results that tests it."""

    text: str
    claim: Literal["greater", "not_worse", "equal"]
    quantity: Quantity = "score"  # what is compared: a method of `findings.Evidence`
    metrics: tuple[str, ...] = ("",)  # the claim must hold in each; costs have none
    pairs: tuple[Pair, ...]
    than: tuple[Pair, ...] = ()  # pairs whose gains are compared with those of `pairs`
    other_than: Mapping[str, Any] = field(default_factory=dict)  # settings that must differ
    bound: float | None = None  # a margin, or the largest ratio of parameters
    hold: int | Literal["all", "available"] = "all"  # how many of the comparisons must hold


@dataclass(frozen=True)
class PaperSetting:
    """What was trained in the paper."""

    encoder: str = "bert-base-uncased"
    depth: int = 12
    width: int = 768
    steps: int | None = None  # of one training; None: not stated
    rows: Mapping[str, int] = field(default_factory=dict)  # training rows of each task
    dev_rows: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper with its tables and findings."""

    name: str
    title: str
    source: str
    surveys: tuple[str, ...]  # named experiments that repeat it
    setting: PaperSetting = PaperSetting()
    tables: tuple[PaperTable, ...]
    findings: tuple[Finding, ...]
    differences: tuple[str, ...]  # from any survey of ours, and errors of the paper


@cache
def read_paper(name: str) -> Paper:
    if name not in NAMES:
        raise UsageError(f"no paper {name!r}; there are {', '.join(NAMES)}.{nearest(name, NAMES)}")
    path = Path(__file__).with_name(f"{name}.yaml")
    data = read_yaml(path, UsageError)
    models = data.pop("models", {})
    for table in data["tables"]:
        complete_rows(table, models)
    for finding in data["findings"]:
        for key in {"pairs", "than"} & finding.keys():
            finding[key] = [[to_side(side, models) for side in pair] for pair in finding[key]]
    return to_value(Paper, data, where=str(path), error=UsageError)


def complete_rows(table: dict[str, Any], models: Mapping[str, Any]) -> None:
    """Names become models; numbers get their measures. `tm` is the printed TM over the first's."""
    measures = table.pop("numbers")
    for row in table["rows"]:
        row["model"] = to_side(row["model"], models)[0]
        row["models"] = {key: to_side(m, models)[0] for key, m in row.get("models", {}).items()}
        numbers = row["numbers"] = dict(zip(measures, row["numbers"], strict=False))
        if "tm_printed" in numbers:
            numbers["tm"] = numbers["tm_printed"] / table["rows"][0]["numbers"]["tm_printed"]


def to_side(names: str | list[str], models: Mapping[str, Any]) -> list[Any]:
    return [models.get(n, {"plan": n}) for n in ([names] if isinstance(names, str) else names)]
