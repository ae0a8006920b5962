"""The papers' numbers against their own arithmetic, and our numbers next to them."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from statistics import mean

import pytest
from papers_made import candidate, material, ours_of, tied_survey, trials_of

from mops.cli.screen import OUT
from mops.data.compose import compose_recipe
from mops.errors import UsageError
from mops.papers import NAMES, claim_table, compare_with, read_paper
from mops.papers.findings import ABSENT
from mops.papers.paper import TASKS, OurResults, Paper, PaperModel, PaperRow, PaperTable
from mops.plans.catalog import parse_plan
from mops.plans.layout import lay_out
from mops.plans.shapes import EncoderShape, HeadShape, Reading
from mops.surveys.experiments import EXPERIMENTS

OVERALL = {"overall": lambda r: r, "overall_normalised": lambda r: (r + 1) / 2}
ROUNDING = 0.001  # three digits, some cut and some rounded
WRONG = {"PALs Parallel Weighted", "Combined", "Top + Parallel (Same) (test)"}
PAPERS = {name: read_paper(name) for name in NAMES}
ROWS = [
    (paper, table, row) for paper in PAPERS.values() for table in paper.tables for row in table.rows
]
# The paper's search found this learning rate; the experiment draws its own.
NOWHERE = {"S-I-I, 8e-6"}


def by_parts(row: PaperRow, convention: str) -> float:
    scores = [row.numbers[task] for task in TASKS]
    return mean([*scores[:2], OVERALL[convention](scores[2])])


# ------------------------------------------------------------------ their arithmetic


def test_overall_scores_are_means_of_task_scores_except_for_three() -> None:
    checked, wrong = 0, set()
    for _, table, row in ROWS:
        for convention in table.columns.keys() & OVERALL.keys():
            printed, right = row.numbers.get(convention), row.should.get(convention)
            if printed is not None and abs(by_parts(row, convention) - printed) < ROUNDING:
                assert right is None
            else:
                wrong.add(row.label)
                assert right == pytest.approx(by_parts(row, convention), abs=ROUNDING)
            checked += 1
    assert wrong == WRONG and checked == 10 + 11 + 3 + 5 + 5 + 4


def test_printed_tm_scores_omit_the_division_by_the_baseline() -> None:
    """Score x time of I-I-I / time x size of I-I-I / size, without / score of I-I-I."""
    for table in PAPERS["mops"].tables:
        for row in table.rows if "costs" in table.name else ():
            n, base = row.numbers, table.rows[0].numbers
            found = n["overall"] * base["seconds"] / n["seconds"] * base["size"] / n["size"]
            assert n["tm_printed"] == pytest.approx(found, abs=0.002)
            assert n["tm"] == pytest.approx(found / base["overall"], abs=0.005)
        assert table.rows[0].numbers.get("tm", 1.0) == 1.0


def base_size(plan: str) -> dict[str, float]:
    """What the founding paper trained: BERT-base, [CLS] pooler, sums of pairs, cosine."""
    tasks = list(compose_recipe(data="sample").task_values().values())
    tasks[0] = replace(tasks[0], labels=tuple("01234"))
    shape = EncoderShape(
        family="bert", depth=12, width=768, heads=12, inner=3072, words=30522, positions=512
    )
    heads = {"similarity": HeadShape(kind="cosine", project=True)}
    reading = Reading(pool="pooler", pair="bi", features=("sum",), heads=heads)
    found = lay_out(parse_plan(plan), tasks, shape, reading)
    return {"weight_bytes": 4 * found.parameters, "trained_parameters": found.trained}


def test_model_sizes_are_checkpoints_with_the_moments_of_adam() -> None:
    """Each printed size, to its last digit, from the weights and two moments of what learns."""
    seen = 0
    for table in PAPERS["mops"].tables:
        for row in table.rows if "costs" in table.name else ():
            plan = PAPERS["mops"].models[row.model].plan
            size = ours_of().value(candidate("x", costs=base_size(plan)), "size", "validation")
            assert size == pytest.approx(row.numbers["size"], abs=1.0)
            seen += 1
    assert seen == 21


# ------------------------------------------------------------------ our numbers


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("has_trial", [False, True])
def test_a_survey_with_nothing_in_common(name: str, has_trial: bool) -> None:
    """All numbers of the paper, none of ours, and no finding is in the survey."""
    one = candidate("own", tasks=("a", "b"))
    trials = trials_of(one, [{"a": 0.5}] * 3) if has_trial else []
    view = compare_with(name, *material(*([one] if has_trial else []), trials=trials))
    assert view.tables and not view.matched
    assert {claim.verdict for claim in view.claims} == {ABSENT}
    for table, printed in zip(view.tables, PAPERS[name].tables, strict=True):
        assert len(table.rows) == len(printed.rows)
        assert all(len(row) == len(table.columns) for row in table.rows)
    shown = {cell.value for table in view.tables for row in table.rows for cell in row}
    numbers = {
        row.numbers[measure]
        for table in PAPERS[name].tables
        for row in table.rows
        for measure in table.columns
        if measure in row.numbers
    }
    assert numbers <= shown


def test_our_numbers_are_means_over_seeds_of_the_whole_dev_split() -> None:
    one = candidate("shared", 0.7)
    scores = [{"sentiment": 0.4, "paraphrase": 0.6, "similarity": 0.8},
              {"sentiment": 0.5, "paraphrase": 0.7, "similarity": 0.9},
              {"sentiment": 0.6, "paraphrase": 0.8, "similarity": 1.0}]  # fmt: skip
    view = compare_with("hybrid", *material(one, trials=trials_of(one, scores)))
    table = view.tables[0]
    assert view.matched == (table,)
    row = next(row for row in table.rows if row[0].text == "1-bert (dev)")
    cells = dict(zip(table.columns, row, strict=True))
    assert cells["Sentiment Acc., paper"].text == "0.497"
    assert cells["Sentiment Acc., ours"].text == "0.500"
    assert cells["Similarity Corr., ours"].value == pytest.approx(0.9)
    assert cells["Overall Score, ours"].value == pytest.approx((0.5 + 0.7 + 0.95) / 3)
    assert cells["Overall Score, ours judged"].text == "0.750 ± 0.009"


def test_a_paper_with_the_plain_mean() -> None:
    one = candidate("frozen+late:III", 0.7)
    scores = [{"sentiment": 0.5, "paraphrase": 0.7, "similarity": 0.9}] * 3
    view = compare_with("mops", *material(one, trials=trials_of(one, scores)))
    cells = dict(zip(view.tables[0].columns, view.tables[0].rows[0], strict=True))
    assert cells["Score, ours"].value == pytest.approx(0.7)


def test_costs_are_in_the_convention_of_the_paper() -> None:
    """TM: score, time and checkpoint beside those of I-I-I; epochs from 0."""
    base, other = candidate("frozen+late:III"), candidate(
        "frozen+late:SSS", costs={"train_seconds": 30.0, "trained_parameters": 0}
    )  # fmt: skip
    trials = [
        *trials_of(base, [dict.fromkeys(TASKS, 0.6)] * 3),
        *trials_of(other, [dict.fromkeys(TASKS, 0.3)] * 3),
    ]
    table = compare_with("mops", *material(base, other, trials=trials)).tables[1]
    rows = {row[0].text: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    size = 3 * 80e6  # the other: a third of it
    assert rows["I-I-I*"]["Model size (KiB), ours"].value == pytest.approx(size / 1024 / 1000)
    assert rows["I-I-I*"]["TM, baseline 1, ours"].value == 1
    found = rows["S-S-S (logs)"]
    assert found["TM, baseline 1, ours"].value == pytest.approx(0.3 / 0.6 * 2 * 3)
    assert "TM as printed, paper" in found and "TM as printed, ours" not in found
    assert found["Epoch, ours"].value == 0  # best after one epoch of two


def test_columns_without_a_number_of_ours_are_left_out() -> None:
    one = candidate("shared", tasks=("sentiment",))
    trials = trials_of(one, [{"sentiment": 0.5}] * 3)
    view = compare_with("hybrid", *material(one, trials=trials))
    row = view.tables[0].rows[1]
    assert [cell.text for cell in row[1:]] == [
        "0.497", "0.500", "0.854", "0.863", "0.761",
    ]  # fmt: skip
    assert "Overall scores of findings: sentiment." in " ".join(view.differences)


def test_wrong_numbers_are_marked_and_corrected() -> None:
    tables = {table.name: table for table in compare_with("pals", *material()).tables}
    row = next(r for r in tables["pals-methods"].rows if r[0].text == "PALs Parallel Weighted")
    overall = row[tables["pals-methods"].columns.index("Overall, paper")]
    assert overall.text == "0.567†" and overall.value == 0.567 and "0.542" in overall.hint


@pytest.mark.parametrize(
    "table", [t for p in PAPERS.values() for t in p.tables], ids=lambda t: t.name
)
def test_the_note_names_every_wrong_number(table: PaperTable) -> None:
    wrong = [(row.label, right) for row in table.rows for right in row.should.values()]
    assert table.note.count("†") == len(wrong)
    assert all(
        f"† {label}: " in table.note and f"should be {n}" in table.note for label, n in wrong
    )


def test_differences_describe_our_training() -> None:
    one = candidate("late:III")
    trials = trials_of(one, [dict.fromkeys(TASKS, 0.5)] * 3)
    text = " ".join(compare_with("mops", *material(one, trials=trials)).differences)
    assert "BERT-base (12 layers of 768) for 10,000 steps" in text
    tasks = "sentiment 100, paraphrase 100, similarity 100"
    assert f"Here: encoder 12 layers of 768; steps 100; training rows {tasks}; dev rows" in text
    assert "similarity 5,000. Overall scores of findings: sentiment, paraphrase, sim" in text


# ------------------------------------------------------------------ which candidate is meant


def test_the_papers_settings_choose_between_several_candidates() -> None:
    models = {
        "any": PaperModel("late:III"),  # the baseline
        "preferred": PaperModel("late:III", prefer={"training.learning_rate": 1e-5}),
        "not there": PaperModel("late:III", prefer={"training.learning_rate": 1.0}),
        "needed": PaperModel("late:III", needs={"training.learning_rate": 1.0}),
        "others": PaperModel("late:III", unlike={"training.learning_rate": 1.0}),
        "alone": PaperModel("late:III", needs={"training.train_tasks": ["sentiment"]}),
    }
    a = candidate("late:III, a", learning_rate=1e-4)
    b = candidate("late:III, b", learning_rate=1e-5)
    ours = ours_of(a, b, models=models)
    found = {name: [one.name[-1] for one in ours.find(name)] for name in (*models, "late:III")}
    assert found == {
        "any": ["a"], "preferred": ["b"], "not there": ["a"], "needed": [], "others": ["a", "b"],
        "alone": [], "late:III": ["a"],
    }  # fmt: skip


def test_a_single_task_network_does_not_stand_for_a_multitask_one() -> None:
    one = candidate("shared, x", settings={"training.train_tasks": ["sentiment"]})
    alone = PaperModel("shared", needs={"training.train_tasks": ["sentiment"]})
    ours = ours_of(one, models={"alone": alone})
    assert not ours.find("shared") and ours.find("alone")


def printed(paper: Paper, model: str, measure: str) -> float:
    """The number of a model in the first table that has it; of runs the time, not the score."""
    rows = [row for table in paper.tables for row in table.rows if row.split == "validation"]
    return next(
        row.numbers[measure]
        for row in rows
        if model == row.models.get(measure, row.model) and measure in row.numbers
    )


@pytest.mark.parametrize("paper", PAPERS.values(), ids=NAMES)
def test_claimed_sizes_are_those_of_the_tables(paper: Paper) -> None:
    """Except for three, which the text gives or another model of the same row."""
    given = {"by 400 %", "a learning rate other than", "Loss weights of"}
    for finding in paper.findings:
        cases = product(finding.contrasts, finding.measures)
        for (models, measure), size in zip(cases, finding.claimed, strict=False):
            if size is None or any(words in finding.text for words in given):
                continue
            if isinstance(models, dict):
                found = sum(w * printed(paper, m, measure) for m, w in models.items())
            else:
                a, b = (printed(paper, model, measure) for model in models)
                found = a / b - 1 if measure == "seconds" else a - b
            assert size == pytest.approx(found, abs=0.0006), finding.text


@pytest.mark.parametrize("paper", PAPERS.values(), ids=NAMES)
def test_the_models_of_a_contrast_differ_and_learn_the_same_tasks(paper: Paper) -> None:
    for finding in paper.findings:
        assert len(finding.claimed) in (0, len(finding.contrasts) * len(finding.measures))
        assert not finding.hold or None not in finding.claimed
        for names in finding.contrasts:
            models = [paper.models.get(name, PaperModel(name)) for name in names]
            kinds = [
                (m.plan, tuple(map(str, (*m.needs.items(), *m.unlike.items())))) for m in models
            ]
            assert len(set(kinds)) == len(models)
            assert len({str(m.needs.get("training.train_tasks")) for m in models}) == 1


@pytest.mark.parametrize("paper", PAPERS.values(), ids=NAMES)
def test_the_named_surveys_have_every_row_and_can_judge_every_finding(paper: Paper) -> None:
    """All candidates are equal, so nothing is significant; but nothing is missing either."""
    assert set(paper.surveys) <= set(EXPERIMENTS)
    rows = {row.label for table in paper.tables for row in table.rows} - NOWHERE
    absent = {finding.text for finding in paper.findings}
    for name in paper.surveys:
        made = tied_survey(name)
        ours, view = OurResults(*made, paper.models), compare_with(paper.name, *made)
        rows -= {row.label for t in paper.tables for row in t.rows if ours.find(row.model)}
        absent -= {claim.text for claim in view.claims if claim.verdict != ABSENT}
    assert not rows and not absent


# ------------------------------------------------------------------ output


def test_the_screen_shows_tables_findings_and_differences() -> None:
    from mops.cli.report import print_paper

    with OUT.capture() as shown:
        print_paper(compare_with("progressive", *material(candidate("progressive-norm"))))
    text = shown.get()
    assert "Shared Layer" in text and "0.591" in text
    assert "Of 8 findings: 8 not in this survey." in text
    assert "Differences:\n- The paper trained BERT-base" in text


def test_claims_are_a_table() -> None:
    view = compare_with("pals", *material())
    table = claim_table(view)
    assert [row[1].text for row in table.rows] == [claim.verdict for claim in view.claims]


def test_an_unknown_paper() -> None:
    with pytest.raises(UsageError, match=r"no paper 'hybird'; there are mops, .*'hybrid'"):
        compare_with("hybird", *material())


def test_a_table_says_which_differences_the_data_exclude() -> None:
    """The intervals of all its models that we have against its first; without a second none."""
    one, other = candidate("frozen+late:III", 0.60), candidate("frozen+late:SSS", 0.62)
    tables = {t.name: t for t in compare_with("mops", *material(one, other)).tables}
    words = "Our data exclude differences in overall from frozen+late:III below "
    low, high = re.findall(r"[+-]\d\.\d+", tables["mops-frozen"].note.partition(words)[2])
    against = material(one, other)[0].joint()["overall"].against("frozen+late:III")
    expected = against["frozen+late:SSS"]
    assert (low, high) == (f"{expected.low:+.3f}", f"{expected.high:+.3f}")
    assert "exclude" not in tables["mops-finetuned"].note
    assert all(table.assessment in tables[table.name].note for table in PAPERS["mops"].tables)
