"""A greedy search over the letters of a plan: which layers the tasks share. No torch.

All plans that differ from the present one in one letter are trained with the same seeds. The one
that gains most takes its place if the gain is more than noise; else the search ends. One half of
the validation rows scores the plans. The winner and the plan of the recipe are then trained with
fresh seeds and judged on the other half.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mops.config.recipe import Recipe
from mops.data.dataset import read_dataset
from mops.data.splits import HALVES, cut_halves
from mops.errors import PlanError, RunError
from mops.files import write_text
from mops.plans.catalog import neighbours
from mops.surveys.design import Survey, to_survey
from mops.surveys.ledger import Ledger
from mops.surveys.results.judge import RowChoice, judge_survey
from mops.surveys.run import FILE
from mops.surveys.tune import Move, SearchResult, compare_winner

# The p-value, over all gains of a round, up to which a gain is more than noise: that of one
# standard error. A stricter level would stop before the rows that judge can tell.
NOISE = 0.32
STAY = "no change of one letter gains more than the noise: keep the default"
Train = Callable[[Survey], None]  # trains the open trials of a survey


def regime_survey(recipe: Recipe, plans: Sequence[str], seeds: int) -> Survey:
    """Plans with the same seeds; the first is the baseline."""
    first = recipe.training.seed
    axes = {"plan": list(dict.fromkeys(plans))}
    data = {"name": "greedy", "axes": axes, "seeds": list(range(first, first + seeds))}
    return to_survey(data | {"source": "a search"}, recipe, where="search")


def first_regimes(recipe: Recipe) -> list[str]:
    """The plan of a recipe and its neighbours."""
    if not isinstance(recipe.plan, str):
        raise PlanError("a plan file has no letters to search; give a short form")
    return [recipe.plan, *neighbours(recipe.plan)]


def search_regimes(recipe: Recipe, folder: Path, train: Train, seeds: int) -> SearchResult:
    """Search from the plan of the recipe, and compare the winner with it."""
    selecting, judging = split_rows(recipe)
    plans, plan, moves = first_regimes(recipe), str(recipe.plan), list[Move]()
    while not moves or moves[-1].is_taken:
        plan = moves[-1].best if moves else plan
        plans += neighbours(plan)
        survey = regime_survey(recipe, plans, seeds)
        write_text(folder / FILE, survey.to_yaml())
        train(survey)
        moves.append(find_move(survey, folder, plan, selecting))
    result = compare_winner(survey, folder, train, winner=plan, seeds=seeds, rows=judging)
    if len(moves) == 1:
        result = replace(result, warning=STAY)
    return replace(result, moves=tuple(moves))


def find_move(survey: Survey, folder: Path, plan: str, rows: RowChoice) -> Move:
    """The best change of one letter, on the rows that select."""
    results = judge_survey(survey, folder, rows)
    near = [name for name in neighbours(plan) if name in results]
    if plan not in results or not near:
        trial = survey.trials()[0]
        reason = Ledger(folder).failure(trial.id).get("reason", "see failed/ in its folder")
        raise RunError(f"{plan} or all plans near it have no finished trial: {reason}")
    by = survey.trials()[0].recipe.training.best_by
    gains = results.joint()[by].among([plan, *near]).against(plan)
    best = max(near, key=lambda name: gains[name].mean)
    is_taken = gains[best].mean > 0 and gains[best].p < NOISE
    return Move(plan, best, gains[best], is_taken)


def split_rows(recipe: Recipe) -> tuple[RowChoice, RowChoice]:
    """The validation rows that select, and those that judge; no sentence is in both."""
    splits = read_dataset(recipe, ("validation",)).splits
    half_of = {name: np.array(cut_halves(own["validation"].rows)) for name, own in splits.items()}
    selecting, judging = ({n: own == half for n, own in half_of.items()} for half in HALVES)
    return selecting, judging
