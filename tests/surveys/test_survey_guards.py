"""Each guard speaks when it should, and only then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mops.record import TaskTraining
from mops.surveys.results.caveats import find_caveats
from mops.surveys.results.judge import judge_survey
from mops.surveys.results.results import RECORDS, CandidateResult, MissingTrial, Results
from surveying import (
    Named,
    Skill,
    made_costs,
    made_standing,
    made_summary,
    made_survey,
    made_trial,
    plain_recipe,
    write_survey,
)


def said(summary: Results, kind: str) -> list[str]:
    return [one.text for one in find_caveats(summary) if one.kind == kind]


def test_a_clean_survey_is_silent() -> None:
    assert not list(
        find_caveats(made_summary(made_standing("shared", 0.7), made_standing("b", 0.6)))
    )


def test_an_option_that_changed_nothing_is_named(tmp_path: Path) -> None:
    """Weight decay 0 and 0.01 give the same answers everywhere; 0.1 does not."""
    survey = made_survey("shared", "decay=0", "decay=0.01", "decay=0.1")
    survey.made[1:] = [
        Named(f"decay={value}", {"plan": "x", "training.weight_decay": value}, plain_recipe())
        for value in (0, 0.01, 0.1)
    ]
    same = Skill(0.6, draw=7)
    skills = {"shared": Skill(0.6), "decay=0": same, "decay=0.01": same, "decay=0.1": Skill(0.6)}
    (text,) = said(judge_survey(survey, write_survey(tmp_path, survey, skills)), "no effect")
    assert text.startswith("training.weight_decay changed nothing: decay=0 and decay=0.01 give")


def test_equal_answers_with_one_seed_only_are_no_proof() -> None:
    """One common seed gave the same, another did not."""
    trials = [made_trial(seed, digest=digest) for seed, digest in ((1, "x"), (2, "y"))]
    other = [trials[0], replace(trials[1], digest="z")]
    standings = (
        made_standing("shared", 0.7, trials=tuple(trials)),
        made_standing("b", 0.7, trials=tuple(other)),
    )
    assert not said(made_summary(*standings), "no effect")


def chosen_by(name: str, score: float, best_score: float) -> Any:
    trials = [
        made_trial(n, score=score, best_score=best_score, digest=f"{name}{n}") for n in (1, 2)
    ]
    return made_standing(name, score, stderr=0.002, trials=tuple(trials))


def test_a_winner_worse_than_the_default() -> None:
    """Chosen by its best evaluations, worse on the rows that judge."""
    default = chosen_by("shared", 0.70, best_score=0.70)
    lucky, good = chosen_by("lucky", 0.65, 0.75), chosen_by("good", 0.72, 0.75)
    (text,) = said(made_summary(default, lucky), "search")
    assert text.startswith("lucky has the best scores") and "than shared" in text
    assert "-0.050, 95 % interval" in text
    assert not said(made_summary(default, good), "search")
    assert not said(made_summary(default, chosen_by("low", 0.65, 0.60)), "search")
    near = chosen_by("near", 0.698, 0.75)  # not significantly worse
    assert not said(made_summary(default, near), "search")


def test_seeds_that_are_missing_are_those_of_the_candidate() -> None:
    """Another candidate of a race has more seeds."""
    trials = (made_trial(1), made_trial(2, digest="b"))
    one = made_standing("b", 0.7, trials=trials, missing_seeds=(3,))
    more = made_standing("shared", 0.7, seeds=(1, 2, 3, 4, 5))
    lost = MissingTrial("x", "b, seed 3", "b", 3, "failed", "out of memory")
    summary = made_summary(more, one, seeds=(1, 2, 3, 4, 5), missing=(lost,))
    assert said(summary, "seeds") == ["b has 2 of 3 seeds; seed 3: out of memory"]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"planned_steps": 200}, "training steps go from 100 (shared) to 200 (b)"),
        ({"rows": 1600}, "training rows of a go from 800 (shared) to 1,600 (b)"),
        ({"rows": 804}, ""),  # some schedules draw the next task
        ({"rows": 400, "stopped_early": True}, ""),  # it chose to stop
    ],
)
def test_budgets_that_differ(facts: dict[str, Any], words: str) -> None:
    other = made_standing("b", 0.7, trials=(made_trial(1, digest="other", **facts),))
    found = said(made_summary(made_standing("shared", 0.7), other), "budget")
    assert words in "".join(found) and bool(found) == bool(words)


def test_trials_that_ended_too_early_are_counted() -> None:
    last = made_trial(1, best_step=100), made_trial(2, best_step=100), made_trial(3)
    summary = made_summary(made_standing("shared", 0.7), made_standing("b", 0.7, trials=last))
    (text,) = said(summary, "convergence")
    assert text.startswith("2 of 6 trials") and "(b)" in text and "larger budget" in text


def test_best_at_the_last_evaluation_is_read_from_the_record(tmp_path: Path) -> None:
    survey = made_survey("shared", "b")
    skills = {"shared": Skill(train={"best_step": 100}), "b": Skill()}
    summary = judge_survey(survey, write_survey(tmp_path, survey, skills))
    assert "3 of 6 trials" in said(summary, "convergence")[0]


def test_costs_that_were_not_measured_and_why() -> None:
    costs = made_costs(source=RECORDS, warnings=("its cost was not measured: out of memory",))
    found = said(
        made_summary(made_standing("shared", 0.7), made_standing("b", 0.7, costs=costs)), "costs"
    )
    assert len(found) == 2 and "for b:" in found[0] and "out of memory" in found[1]


def timed(name: str, seconds: float, flops: float = 1e9, trained: int = 1000, **facts: Any) -> Any:
    work = {"step_seconds": seconds, "flops_per_step": flops, "trained_parameters": trained}
    return made_standing(name, 0.7, costs=made_costs(**{"noise": 0.05, **work, **facts}))


def test_equal_work_in_different_times_is_noise() -> None:
    """The baseline's own time varied by 5 %; 8 % more for the same FLOPs is the machine's."""
    pals = timed("pals", 2.0, flops=1.2e9)
    found = said(made_summary(timed("shared", 1.0), timed("twin", 1.08), pals), "noise")
    assert found == [
        "shared and twin do the same work; their step times differ by 8%: "
        "that is this machine's noise"
    ]
    assert not said(made_summary(timed("shared", 1.0), timed("twin", 1.04), pals), "noise")


def test_tasks_that_were_hardly_trained_are_named() -> None:
    """A report's 460 batches of 8 rows, 0.61 passes, beside a candidate with enough of them."""

    def trained(name: str, batches: int) -> CandidateResult:
        own = TaskTraining(6040, batches, 8 * batches, 8 * batches / 6040, planned_batches=batches)
        trial = made_trial(digest=name, tasks={"a": own, "b": replace(own, passes=1.0)})
        return made_standing(name, 0.7, trials=(trial,))

    (text,) = said(made_summary(trained("shared", 460), trained("long", 2000)), "starved")
    assert text.startswith("a was hardly trained (0.61 passes over its rows) in shared: ")
    (text,) = said(made_summary(trained("shared", 460), trained("short", 230)), "starved")
    assert "(0.30 to 0.61 passes over its rows) in shared, short" in text
    assert not said(made_summary(trained("shared", 2000)), "starved")


def test_a_group_is_one_sentence_from_the_quickest_to_the_slowest() -> None:
    (text,) = said(made_summary(timed("a", 1.1), timed("b", 1.0), timed("c", 1.5)), "noise")
    assert text.startswith("b, a and c do the same work; their step times differ by 50%")


def test_more_weights_to_update_are_more_work() -> None:
    """Equal FLOPs, but the optimizer passes three times as many weights: no noise."""
    assert not said(made_summary(timed("shared", 1.0), timed("b", 1.4, trained=3000)), "noise")


def test_without_a_known_noise_nothing_is_said() -> None:
    assert not said(made_summary(timed("a", 1.0, noise=None), timed("b", 2, noise=None)), "noise")


def test_a_cost_pass_beside_other_programs_is_flagged() -> None:
    (text,) = said(made_summary(timed("a", 1.0, waited=0.4), timed("b", 1.0, waited=0.1)), "noise")
    assert "other programs used this machine" in text and "40%" in text


def test_many_names_are_not_all_listed() -> None:
    others = [
        made_standing(f"p{n}", 0.7, trials=(made_trial(digest=str(n), planned_steps=300),))
        for n in range(9)
    ]
    (text,) = said(made_summary(made_standing("shared", 0.7), *others), "budget")[:1]
    assert "p3 and 5 more" in text and "p5" not in text
