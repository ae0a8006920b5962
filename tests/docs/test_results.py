"""The sentences of docs/results.md about budgets are true for every schedule."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args

import pytest

from mops.config.training import ScheduleName, Training
from mops.data.schedule import plan_steps, task_budgets
from mops.papers import Claim, PaperView
from mops.papers.findings import ABSENT, HOLDS, OPEN
from mops.record import TaskTraining
from mops.tables import Table
from surveying import made_standing, made_summary, made_survey

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", get_args(ScheduleName))
def test_the_budget_is_what_was_trained(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps, rows and passes of each task are those that the schedule has, over both seeds."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    make_results = __import__("make_results")
    sys.modules.pop("make_results")
    sizes, given, trials = {"a": 1000, "b": 300}, [], []
    one = made_standing("shared", 0.7, seeds=(1, 2))
    for trial in one.trials:
        training = Training(schedule=name, seed=trial.seed, max_steps=50, per_task_batch_size=8)
        given.append(task_budgets(plan_steps(sizes, training)))
        taken = {t: TaskTraining(**asdict(own), planned_batches=1) for t, own in given[-1].items()}
        info = replace(trial.train_info, steps=50, planned_steps=50, tasks=taken)
        trials.append(replace(trial, train_info=info))
    results = made_summary(replace(one, trials=tuple(trials)))
    text = make_results.heading(made_survey("shared"), results)
    assert "50 steps" in text
    for task in sizes:
        rows = sorted({budgets[task].examples for budgets in given})
        passes = sorted({f"{budgets[task].passes:.2f}" for budgets in given})
        found = re.search(rf"(\d[\d,to ]*) rows of {task} \(([\d.to ]+) passes\)", text)
        assert found, text
        assert found[1].replace(",", "").split(" to ") == [str(n) for n in rows]
        assert found[2].split(" to ") == passes


def test_a_finding_is_judged_by_the_first_survey_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    make_results = __import__("make_results")
    sys.modules.pop("make_results")
    table = Table("t", "Table 1", ("model", "score, paper"), (), "The note.")
    ours = replace(table, columns=(*table.columns, "score, ours"))

    def view(table: Table, *verdicts: str) -> PaperView:
        claims = tuple(Claim(f"{n}", verdict, "why") for n, verdict in enumerate(verdicts))
        return PaperView("p", "Paper", "", ("trunks",), (table,), claims, ("Here: of ours.",))

    views = {"first": view(table, ABSENT, ABSENT, OPEN), "second": view(ours, HOLDS, ABSENT, HOLDS)}
    settled = [*make_results.settle(views)]
    assert [(name, claim.verdict) for name, claim in settled] == [
        ("second", HOLDS), ("", "not run"), ("first", OPEN),
    ]  # fmt: skip
    assert "| all | 3 | 1 | 0 | 0 | 1 | 1 |" in make_results.count_verdicts({"Paper": settled})
    text = "\n".join(make_results.paper_section(views, settled))
    assert "**Table 1**, `second`" in text and "`mops survey trunks`" in text
    assert "- `first`: of ours." in text and "- `second`: of ours." in text
    text = "\n".join(make_results.paper_section({"first": views["first"]}, settled[1:2]))
    assert "**Table 1**: not run.\n\nThe note." in text
