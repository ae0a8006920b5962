"""Every named experiment is a survey of any tasks, with the numbers of its source."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path

import pytest
from designs import names, recipe

from mops.config.recipe import to_recipe
from mops.data.dataset import Dataset, read_dataset
from mops.errors import MopsError, RecipeError
from mops.model.sources import find_encoder
from mops.plans.layout import lay_out
from mops.plans.shapes import EncoderShape, Reading
from mops.surveys.budget import Estimator
from mops.surveys.design import Survey, to_survey
from mops.surveys.experiments import (
    DEFAULT,
    EXPERIMENTS,
    find_experiment,
    named_survey,
    tasks_for,
)
from mops.training.batched import batching_obstacle
from mops.yaml_io import parse_yaml
from running import write_toy_data

ROOT = Path(__file__).parents[2]
THREE = ("sentiment", "paraphrase", "similarity")
TASKS = {
    "one": ("sentiment",),
    "two": ("sentiment", "similarity"),
    "two pairs": ("paraphrase", "similarity"),
    "three": THREE,
    "four": (*THREE, "movies"),
}
# What has no meaning for some numbers of tasks.
NEEDS = {
    "loss-weights": {"three"},
    "subsets": {"three", "four"},
    "progressive": {"two", "two pairs", "three", "four"},
    "pairs": {"two", "two pairs", "three", "four"},
}


@cache
def survey(name: str, *tasks: str) -> Survey:
    return named_survey(name, recipe(*tasks))


@cache
def dataset(*tasks: str) -> Dataset:
    return read_dataset(recipe(*tasks), ("validation",))


def test_the_table_has_what_the_papers_have() -> None:
    wanted = {
        "late-frozen", "late-finetuned", "learning-rates", "loss-weights", "subsets",
        "single-task", "stages", "soft", "trunks", "hybrid-depth", "fsi", "pals", "progressive",
        "schedulers", "pairs", "heads", "dropout", "surgery", "schedules", "encoders", "width",
        "time", "everything", "first-look", "sharing", "transfer",
    }  # fmt: skip
    assert set(EXPERIMENTS) == wanted and DEFAULT == "everything"
    assert all(entry.about and entry.source and entry.hours > 0 for entry in EXPERIMENTS.values())


FEW = [(name, count) for name in (*NEEDS, DEFAULT, "single-task") for count in ("one", "two pairs")]
MORE = [(name, count) for name in EXPERIMENTS for count in ("two", "three", "four")]


@pytest.mark.parametrize(("name", "count"), [*FEW, *MORE])
def test_an_experiment_fits_the_tasks_or_says_why_not(name: str, count: str) -> None:
    """Complete recipes, plans that lay out, different names, a baseline among them."""
    if count not in NEEDS.get(name, set(TASKS)):
        with pytest.raises(RecipeError, match=f"experiment '{name}' needs ") as caught:
            survey(name, *TASKS[count])
        assert "\n" not in str(caught.value)
        return
    found = survey(name, *TASKS[count])
    shape = find_encoder("minilm").shape
    assert len(set(names(found))) == len(found.candidates()) > 1
    assert found.baseline in names(found)
    for candidate in found.candidates():
        assert to_recipe(candidate.recipe.to_data()) == candidate.recipe
        candidate.recipe.layout(dataset(*TASKS[count]).tasks, shape)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_is_the_same_after_yaml(name: str) -> None:
    found = survey(name, *THREE)
    assert to_survey(parse_yaml(found.to_yaml())) == found


COUNTS = {
    "late-frozen": 8,
    "late-finetuned": 8,
    "learning-rates": 2 * (4 * (5 + 1) + 1),  # five drawn rates and the default; III
    "loss-weights": 2 * (6 + 1),  # equal weights too
    "subsets": 9 + 1,  # III
    "trunks": 3,
    "hybrid-depth": 6 + 2,  # 0 to 5 of six layers shared, then all; and a model per task
    "pals": 9,
    "progressive": 10,
    "schedulers": 3 * 4,
    "schedules": 10,
    "single-task": 2,
    "stages": 3,
}


@pytest.mark.parametrize("name", COUNTS)
def test_as_many_candidates_as_the_papers_have(name: str) -> None:
    found = survey(name, *THREE)
    assert len(found.candidates()) == COUNTS[name]
    assert len({trial.id for trial in found.trials()}) == COUNTS[name] * len(found.seeds)


def test_more_tasks_form_groups_without_singletons() -> None:
    """Four tasks: three ways to form two pairs; three regimes; and III."""
    found = survey("subsets", *TASKS["four"])
    assert len(found.candidates()) == 3 * 3 + 1
    for name in names(found)[1:]:
        groups = name.partition("/")[2].split(",")
        assert [len(group.split("+")) for group in groups] == [2, 2]
    five = recipe(*TASKS["four"]).to_data()
    five["tasks"]["fifth"] = five["tasks"]["movies"]
    assert len(named_survey("subsets", to_recipe(five)).candidates()) == 3 * 10 + 1  # 2 and 3


def test_the_eight_regimes_are_all_of_them() -> None:
    for name, plan in (("late-frozen", "frozen+late:"), ("late-finetuned", "late:")):
        regimes = {found.removeprefix(plan) for found in names(survey(name, *THREE))}
        assert regimes == {f"{a}{b}{c}" for a in "SI" for b in "SI" for c in "SI"}
        assert survey(name, *THREE).baseline == f"{plan}III"


def test_late_sharing_has_the_numbers_of_the_paper() -> None:
    for name, rate in (("late-frozen", 1e-3), ("late-finetuned", 1e-5)):
        for candidate in survey(name, *THREE).candidates():
            how = candidate.recipe.training
            assert how.learning_rate == how.head_learning_rate == rate
            assert (how.max_steps, how.steps_per_epoch, how.per_task_batch_size) == (10000, 1000, 8)
            assert (how.head_dropout, how.weight_decay, how.max_grad_norm) == (0.3, 0, 0)
            assert (how.lr_scheduler_type, how.warmup_steps, how.pair) == ("none", 0, "bi")
            assert how.loss_weights == dict.fromkeys(THREE, 0.333333)
            assert how.head == {"similarity": {"kind": "cosine", "project": True}}


def test_rates_are_in_the_range_and_the_default_is_among_them() -> None:
    found = survey("learning-rates", *THREE).candidates()
    for prefix, default, best in (
        ("late:", 1e-5, {"ISS", "SII", "SSI", "SIS"}),
        ("frozen+late:", 1e-3, {"SSI", "IIS", "SII", "ISS"}),
    ):
        own = [c for c in found if str(c.recipe.plan).startswith(prefix)]
        by_plan: dict[str, set[float]] = {}
        for one in own:
            regime = str(one.recipe.plan).removeprefix(prefix)
            assert one.recipe.training.head_learning_rate == one.recipe.training.learning_rate
            by_plan.setdefault(regime, set()).add(one.recipe.training.learning_rate)
        assert by_plan.pop("III") == {default}
        assert set(by_plan) == best
        for rates in by_plan.values():
            assert default in rates and len(rates) == 6
            fifths = {int((math.log10(rate) + 7) / 6 * 5) for rate in rates - {default}}
            assert fifths == {0, 1, 2, 3, 4}


def test_weights_are_the_six_of_the_paper() -> None:
    found = survey("loss-weights", *THREE).candidates()
    for plan, rate in (("late:ISS", 1e-5), ("frozen+late:ISS", 8.565e-6)):
        own = [c.recipe.training for c in found if c.recipe.plan == plan]
        assert {how.head_learning_rate for how in own} == {rate}
        tried = {tuple(how.loss_weights[task] for task in THREE) for how in own}
        assert tried == {
            (0.333333, 0.333333, 0.333333), (0.4, 0.4, 0.2), (0.4, 0.2, 0.4), (0.2, 0.4, 0.4),
            (0.5, 0.25, 0.25), (0.25, 0.5, 0.25), (0.25, 0.25, 0.5),
        }  # fmt: skip


def test_hybrid_pals_and_progressive_have_the_numbers_of_their_reports() -> None:
    trunk = survey("trunks", *THREE).candidates()[0].recipe.training
    assert (trunk.learning_rate, trunk.weight_decay, trunk.head_dropout) == (1e-5, 1e-3, 0.3)
    assert trunk.max_steps == 20 * (trunk.steps_per_epoch or 0)
    assert trunk.head == {"kind": "mlp", "depth": 2, "width": 256} and trunk.pair == "cross"
    pals = survey("pals", *THREE).candidates()[0].recipe.training
    assert (pals.max_steps, pals.steps_per_epoch, pals.schedule) == (4000, 400, "annealed")
    assert pals.learning_rate == pals.head_learning_rate == 1e-5
    fed = survey("progressive", *THREE).candidates()[0].recipe.training
    assert [(s.steps, s.frozen, s.head_learning_rate) for s in fed.stages] == [
        (10000, True, 1e-3), (10000, False, 1e-5),
    ]  # fmt: skip
    decays = survey("schedulers", *THREE)
    assert {c.recipe.training.weight_decay for c in decays.candidates()} == {0, 1e-4, 1e-3, 1e-2}


def test_progressive_tries_edges_gradients_and_norms() -> None:
    found = survey("progressive", *THREE).candidates()
    feeds = [c.recipe.sharing_plan().feeds for c in found]
    assert {row.gradient for rows in feeds for row in rows} == {"frozen-head", "stop", "full"}
    alone = {(rows[0].source, rows[0].target) for rows in feeds if len(rows) == 1}
    assert alone - {("*", "*")} == {
        ("sentiment", "paraphrase"), ("sentiment", "similarity"), ("paraphrase", "similarity"),
    }  # fmt: skip
    normed = [c.recipe.sharing_plan() for c in found if c.recipe.sharing_plan().late]
    assert [plan.name for plan in normed] == ["late:N", "progressive-norm"]
    assert all(plan.late == normed[0].late and not plan.late[0].per for plan in normed)


def test_pals_have_projections_of_every_layer_and_movies_as_a_fourth_task() -> None:
    """On BERT-base 5.28 M weights a task, as computed from the report."""
    shape = EncoderShape(
        family="bert", depth=12, width=768, heads=12, inner=3072, words=30522, positions=512
    )
    tasks = list(dataset(*THREE).tasks.values())
    found = {c.name: c.recipe.sharing_plan() for c in survey("pals", *THREE).candidates()}
    base = lay_out(found["shared"], tasks, shape, Reading()).parameters
    own = lay_out(found["pals:parallel-apart"], tasks, shape, Reading()).parameters - base
    assert own == pytest.approx(3 * 5.28e6, rel=0.002)
    assert survey("pals", *TASKS["four"]).candidates()[0].recipe.training.schedule == "annealed"
    assert set(EXPERIMENTS["pals"].joins) == {"movies"}


def test_schedules_see_equal_rows_in_every_step() -> None:
    for candidate in survey("schedules", *THREE).candidates():
        how = candidate.recipe.training
        tasks = 3 if how.schedule in ("together", "mixed") else 1
        assert tasks * how.batch_size("sentiment") == 24


def test_a_task_alone_trains_only_itself_and_movies_join(tmp_path: Path) -> None:
    found = survey("single-task", "sentiment", "paraphrase", "movies")
    assert {c.recipe.training.train_tasks for c in found.candidates()} == {
        ("sentiment",), ("movies",),
    }  # fmt: skip
    assert len(found.candidates()) == 4
    assert all(len(c.recipe.tasks) == 3 for c in found.candidates())
    folder = write_toy_data(tmp_path)
    assert tasks_for("single-task", str(folder)) is None
    for split in ("train", "dev"):
        text = (folder / f"ids-sst-{split}.csv").read_text("utf-8")
        (folder / f"ids-cfimdb-{split}.csv").write_text(text, "utf-8")
    assert tasks_for("single-task", str(folder)) == [*THREE, "movies"]
    assert tasks_for("trunks", str(folder)) is None


def test_everything_has_all_families_and_three_that_train_as_a_batch() -> None:
    found = survey("everything", *THREE)
    plans = [str(candidate.recipe.plan) for candidate in found.candidates()]
    assert len({re.split("[:]", plan)[0] for plan in plans}) >= 8
    assert (found.baseline, found.single, len(found.seeds)) == ("shared", "separate", 2)
    batched = [c.recipe.plan for c in found.candidates() if not batching_obstacle(c.recipe)]
    assert len(batched) >= 3 and all(str(plan).startswith("frozen+") for plan in batched)
    budgets = {
        (c.recipe.training.max_steps, c.recipe.training.schedule) for c in found.candidates()
    }
    assert len(budgets) == 1


def test_width_varies_what_is_learnt() -> None:
    found = survey("width", *THREE).candidates()
    rows = dataset(*THREE)
    shape = find_encoder("minilm").shape
    late = [c for c in found if "late" in c.name]
    sizes = [c.recipe.layout(rows.tasks, shape).trained for c in late]
    assert sizes == sorted(sizes) and sizes[-1] > 10 * sizes[0]


def test_time_has_many_evaluations() -> None:
    for candidate in survey("time", *THREE).candidates():
        how = candidate.recipe.training
        assert (how.max_steps or 0) / (how.eval_steps or 1) >= 20


@pytest.mark.parametrize(
    "name", ["everything", "sharing", "late-frozen", "trunks", "pals", "width"]
)
def test_the_expected_time_is_that_of_the_estimate(name: str) -> None:
    """On the sample, at the speed that the table names."""
    forecast = Estimator(gflops=200).survey(survey(name, *THREE))
    assert forecast.seconds / 3600 == pytest.approx(EXPERIMENTS[name].hours, rel=0.1)


def test_an_unknown_experiment_names_the_nearest() -> None:
    with pytest.raises(MopsError, match=r"no experiment 'late-frosen'.*Did you mean 'late-frozen'"):
        find_experiment("late-frosen")


def test_the_page_lists_every_experiment() -> None:
    page = (ROOT / "docs" / "experiments.md").read_text("utf-8")
    assert all(f"`{name}`" in page for name in EXPERIMENTS)
