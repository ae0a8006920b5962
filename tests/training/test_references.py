"""The untrained encoder and the linear probe: what they are, where they stand, when they warn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mops
from mops.config.recipe import Recipe
from mops.evaluate.metrics import score
from mops.record import Record, RunScores
from mops.reports.report import plan_table
from mops.reports.source import read_source
from mops.surveys.results.judge import join_references, judge_run
from mops.surveys.results.tables import score_table
from mops.training import references
from mops.training.prepare import Prepared, prepare
from mops.training.references import PROBE, UNTRAINED, below_references, fit_ridge
from running import world

TASKS = {"sentiment", "paraphrase", "similarity"}


@pytest.fixture(scope="module")
def record() -> Record:
    return mops.read_record(world().run / "record.json")


def ready(recipe: Recipe) -> Prepared:
    return prepare(recipe, lambda _: None)


def test_ridge_is_its_closed_form_with_the_best_penalty() -> None:
    draw = np.random.default_rng(0)
    train, others = draw.normal(size=(40, 6)), draw.normal(size=(9, 6))
    targets = train @ draw.normal(size=(6, 2)) + 0.01 * draw.normal(size=(40, 2))
    plain = [(own - train.mean(0)) / (train.std(0) + 1e-9) for own in (train, others)]
    penalty = 0.01  # hardly any noise
    left = plain[0].T @ plain[0] + penalty * np.eye(6)
    weights = np.linalg.solve(left, plain[0].T @ (targets - targets.mean(0)))
    expected = plain[1] @ weights + targets.mean(0)
    np.testing.assert_allclose(fit_ridge(train, targets, others), expected, rtol=1e-8)
    noise = draw.normal(size=(40, 1))  # with nothing to learn the mean is the answer
    assert np.ptp(fit_ridge(train, noise, others)) < 0.3 * np.ptp(noise)


def test_the_untrained_encoder_is_the_cosine_of_plain_mean_vectors() -> None:
    """Against the vectors of transformers' own model."""
    import torch
    from transformers import AutoModel

    own = ready(world().recipe("shared"))
    rows = own.dataset.splits["similarity"]["validation"].labelled
    model = AutoModel.from_pretrained(world().encoder).eval()

    def vector(text: str) -> Any:
        ids = torch.tensor([own.source.tokenizer.encode(text).ids])
        with torch.no_grad():
            return model(ids).last_hidden_state[0].mean(0).numpy()

    pairs = [[vector(text) for text in row.texts] for row in rows]
    cosines = [u @ v / (np.linalg.norm(u) * np.linalg.norm(v)) for u, v in pairs]
    labels = np.array([row.label for row in rows])
    task = own.dataset.tasks["similarity"]
    expected = score(task, labels, np.array(cosines))["pearson"]
    found = references.measure_references(own)[UNTRAINED]["similarity"]
    assert found == pytest.approx(expected, abs=1e-5)


def test_a_record_has_both(record: Record) -> None:
    assert set(record.references) == {UNTRAINED, PROBE}
    assert set(record.references[UNTRAINED]) == {"similarity"}
    assert set(record.references[PROBE]) == TASKS


def test_they_do_not_depend_on_the_plan_or_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    first = references.measure_references(ready(world().recipe("shared")))
    other = world().recipe("separate", training__seed=9, training__pair="bi")
    assert references.measure_references(ready(other)) is first  # once in a process
    monkeypatch.setattr(references, "KNOWN", {})
    assert references.measure_references(ready(other)) == first


def test_whoever_ends_below_one_is_told() -> None:
    good = {"accuracy": 0.7, "stderr": 0.02}
    scores = RunScores(
        main={"mood": "accuracy", "close": "pearson", "idle": "accuracy"},
        overall={},
        tasks={
            "mood": {"report": good},
            "close": {"report": {"pearson": 0.60, "stderr": 0.01}},
            "idle": {"report": {"accuracy": 0.1, "stderr": 0.01}},
        },
        untrained=("idle",),
    )
    given = {UNTRAINED: {"close": 0.838}, PROBE: {"mood": 0.71, "close": 0.605, "idle": 0.9}}
    (told,) = below_references(given, scores)
    assert told.startswith("close: pearson 0.600 is below the 0.838 of the untrained encoder")


def test_a_run_that_ends_below_says_so_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "mops.training.run.measure_references", lambda _: {PROBE: {"sentiment": 0.99}}
    )
    run = mops.train(world().recipe("shared"), tmp_path / "run")
    (told,) = [text for text in run.record.warnings if "linear probe" in text]
    assert told in json.loads((tmp_path / "run/model/config.json").read_text())["warnings"]
    assert told in (tmp_path / "run/model/README.md").read_text()


def test_they_are_rows_of_the_tables() -> None:
    results = judge_run(world().run)
    for table in (score_table(results), plan_table(results)):
        names = [row[1].text for row in table.rows]
        assert names[-2:] == [UNTRAINED, PROBE]
        assert len({len(row) for row in table.rows}) == 1 == len(set(table.columns[:1]))
        assert all(len(row) == len(table.columns) for row in table.rows)
        probe = dict(zip(table.columns, table.rows[-1], strict=True))
        for task, value in results.references[PROBE].items():
            assert probe[task].text == f"{value:.3f}"
        untrained = dict(zip(table.columns, table.rows[-2], strict=True))
        assert untrained["overall"].text == untrained["sentiment"].text == ""
    assert read_source(world().run).results.references == results.references


def test_several_encoders_have_rows_of_their_own(record: Record) -> None:
    other = replace(record, meta_info=replace(record.meta_info, encoder="/somewhere/else"))
    assert set(join_references([record, record])) == {UNTRAINED, PROBE}
    names = set(join_references([record, other]))
    assert f"{PROBE} (else)" in names and f"{PROBE} (encoder)" in names and len(names) == 4
