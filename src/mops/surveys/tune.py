"""Hyperparameter search: settings drawn from a space, of which the better half goes on. No torch.

The first trial is the recipe itself, the default. All trials are trained to a quarter of their
steps, the better half to half of them, and so on (successive halving, Jamieson and Talwalkar 2016),
by the score on the validation rows. Winner and default are then compared on fresh seeds: the seed
that won the search is lucky.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mops.config.recipe import Recipe
from mops.data.dataset import read_dataset
from mops.data.schedule import generator, plan_steps
from mops.errors import RecipeError, RunError, nearest
from mops.evaluate.joint import Difference
from mops.surveys.design import Survey, to_survey
from mops.surveys.expansion import Block, count_steps
from mops.surveys.experiments import DEFAULT, named_survey
from mops.surveys.ledger import Candidate, Ledger, Round, Trial
from mops.surveys.results.judge import RowChoice, judge_survey
from mops.surveys.run import RUNGS, Executor, next_rung, train_round
from mops.yaml_io import read_yaml

EVALUATIONS = 8  # of every trial, evenly over its own budget
KINDS = ("choice", "uniform", "log_uniform")
# Of a candidate's learning rate, that --tune-rates tries; and to which fraction of the steps.
RATE_FACTORS, RATES_UNTIL = (1 / 3, 1, 3), 0.5


@dataclass(frozen=True)
class Draw:
    kind: str
    values: tuple[Any, ...]  # the choices, or the lowest and the highest

    def value(self, rng: np.random.Generator) -> Any:
        """Numbers have three digits; more say nothing."""
        if self.kind == "choice":
            return self.values[int(rng.integers(len(self.values)))]
        if self.kind == "uniform":
            return float(f"{rng.uniform(*self.values):.3g}")
        low, high = map(math.log, self.values)
        return float(f"{math.exp(rng.uniform(low, high)):.3g}")


def default_space(recipe: Recipe) -> dict[str, Draw]:
    """A plan of each family, learning rates, loss weights, half or all of the budget.

    At learning rates outside these ranges fine-tuning forgets or hardly moves.
    """
    training = recipe.training
    candidates = named_survey(DEFAULT, recipe).candidates()
    space = {
        "plan": Draw("choice", tuple(candidate.recipe.plan for candidate in candidates)),
        "training.learning_rate": Draw("log_uniform", (1e-5, 1e-4)),
        "training.head_learning_rate": Draw("log_uniform", (1e-4, 3e-3)),
    }
    if isinstance(training.loss_weights, dict) and len(recipe.tasks) > 1:
        weight = Draw("log_uniform", (0.25, 4.0))
        space |= {f"training.loss_weights.{task}": weight for task in recipe.tasks}
    if training.max_steps and training.max_steps > 1:
        half = math.ceil(training.max_steps / 2)
        space["training.max_steps"] = Draw("choice", (half, training.max_steps))
    return space


def read_space(path: Path) -> dict[str, Draw]:
    """`training.learning_rate: {log_uniform: [1e-5, 1e-4]}`, one line for each key."""
    return {str(key): to_draw(value, f"{path}: {key}") for key, value in read_yaml(path).items()}


def to_draw(value: Any, where: str) -> Draw:
    kind, values = next(iter(value.items()), ("", [])) if isinstance(value, dict) else ("", [])
    is_valid = kind in KINDS and len(value) == 1 and isinstance(values, list) and len(values) > 0
    if is_valid and kind != "choice":
        are_numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
        lowest = 0 if kind == "log_uniform" else -math.inf
        is_valid = len(values) == 2 and are_numbers and lowest < values[0] < values[1] < math.inf
    if not is_valid:
        raise RecipeError(
            f"{where} is {value!r}; allowed: a mapping of one of {', '.join(KINDS)} to a list, as "
            "{log_uniform: [1e-5, 1e-4]}; a range has the lowest and the highest value, "
            f"log_uniform above 0.{nearest(str(kind), KINDS)}"
        )
    return Draw(kind, tuple(values))


def budget_in_steps(recipe: Recipe) -> Recipe:
    """The same recipe with its budget and its evaluations in steps.

    Every trial has equally many evaluations, unless the recipe says how many.
    """
    training = recipe.training
    steps = count_steps(recipe.to_data()["training"])
    if steps is None:  # a budget in epochs depends on the rows
        steps = len(plan_steps(read_dataset(recipe).train_files, training))
    update: dict[str, Any] = {} if training.stages else {"max_steps": steps}
    update["eval_steps"] = training.eval_steps or math.ceil(steps / EVALUATIONS)
    return recipe.model_copy(update={"training": training.model_copy(update=update)})


def plan_search(recipe: Recipe, space: Mapping[str, Draw], trials: int) -> Survey:
    """The recipe itself and `trials - 1` settings drawn from the space, as a survey.

    A draw depends on the seed, the key and its number: more trials begin with the same ones. Every
    trial has as many evaluations as the recipe, also with another budget.
    """
    training = recipe.training
    blocks: list[dict[str, dict[str, Any]]] = [{}]  # the recipe itself
    for n in range(1, trials):
        point = {
            key: draw.value(generator(training.seed, "tune", key, str(n)))
            for key, draw in space.items()
        }
        steps = point.get("training.max_steps")
        if steps and training.max_steps and (training.eval_steps or 0) >= 1:
            interval = math.ceil(training.eval_steps * steps / training.max_steps)
            point["training.eval_steps"] = interval
        blocks.append({"set": point})
    data = {"name": "tune", "source": "a search", "blocks": blocks, "seeds": [training.seed]}
    return to_survey(data, recipe, where="search")


@dataclass(frozen=True)
class SearchTrial:
    """How far one trial of a search came."""

    name: str
    seed: int
    id: str
    settings: Mapping[str, Any]
    state: str
    reached: float  # fraction of its steps
    score: float | None  # the best on the validation rows


@dataclass(frozen=True)
class Move:
    """One round of a greedy search (`greedy.py`)."""

    plan: str
    best: str  # the neighbour with the highest score
    gain: Difference  # of it, on the rows that select; its interval is that of all neighbours
    is_taken: bool


@dataclass(frozen=True)
class SearchResult:
    """The winner of a search, compared with the default."""

    best_by: str
    tried: tuple[SearchTrial, ...]  # the default first
    winner: str
    seeds: tuple[int, ...]  # that winner and default were compared with
    difference: Difference | None  # winner minus default on these seeds
    warning: str
    moves: tuple[Move, ...] = ()  # of a greedy search


def run_search(survey: Survey, executor: Executor, seeds: int) -> SearchResult:
    """Find the winner, train it and the default with fresh seeds, and compare the two."""
    train_rungs(survey, executor)
    winner, folder = pick_winner(survey.trials(), executor.ledger), executor.ledger.folder

    def train(both: Survey) -> None:
        train_round(both.trials(), executor)

    return compare_winner(survey, folder, train, winner=winner.name, seeds=seeds)


def compare_winner(
    survey: Survey,
    folder: Path,
    train: Callable[[Survey], None],
    *,
    winner: str,
    seeds: int,
    rows: RowChoice | None = None,
) -> SearchResult:
    """Train winner and default with fresh seeds, and compare the two, on all rows or on some."""
    trials, ledger = survey.trials(), Ledger(folder)
    default, first = trials[0].candidate.name, max(survey.seeds) + 1
    by, fresh = trials[0].recipe.training.best_by, tuple(range(first, first + seeds))
    difference = None
    if winner != default:
        entry = Round(candidates=(default, winner), seeds=fresh)
        both = survey.model_copy(update={"seeds": (), "rounds": (entry,)})
        train(both)
        results = judge_survey(both, folder, rows)
        difference = results[winner].against.get(by) if winner in results else None
    return SearchResult(
        best_by=by,
        tried=tuple(look_up(trial, ledger) for trial in trials),
        winner=winner,
        seeds=fresh,
        difference=difference,
        warning=find_warning(winner, default, difference),
    )


def train_rungs(survey: Survey, executor: Executor) -> None:
    """Train all trials to the first rung, and the better half of them to the next one."""
    names, progress = [c.name for c in survey.candidates()], executor.ledger.progress
    entry = Round(candidates=tuple(names), seeds=survey.seeds, until=RUNGS[0])
    train_round(survey.trials_of(entry), executor, entry.until)
    while entry.until < 1:
        scores = {t.candidate.name: progress(t.id).rank for t in survey.trials()}
        entry = next_rung(entry, scores, survey.baseline)
        train_round(survey.trials_of(entry), executor, entry.until)


def pick_winner(trials: Sequence[Trial], ledger: Ledger) -> Candidate:
    """The finished trial with the best validation score; the default wins a draw."""
    finished = [trial for trial in trials if ledger.is_finished(trial.id)]
    if not finished:
        reason = ledger.failure(trials[0].id).get("reason", "see failed/ in its folder")
        raise RunError(f"no trial of the search has finished; the first one: {reason}")
    return max(finished, key=lambda trial: ledger.progress(trial.id).rank).candidate


def look_up(trial: Trial, ledger: Ledger) -> SearchTrial:
    own, state, progress = trial.candidate, ledger.state(trial.id), ledger.progress(trial.id)
    reached, score = progress.reached, progress.score
    return SearchTrial(own.name, trial.seed, trial.id, own.settings, state, reached, score)


def find_warning(winner: str, default: str, difference: Difference | None) -> str:
    """Why the winner should not be trusted; empty if it may be."""
    if winner == default:
        return "no trial was better than the default: keep the default"
    if difference is None:
        return "the winner could not be compared with the default: a training of them failed"
    shown = f"{difference.mean:+.3f} ± {difference.stderr:.3f}, {difference.seeds} fresh seed(s)"
    if difference.mean <= 0:
        return f"the winner is worse than the default ({shown}): keep the default"
    if not difference.is_significant:
        return f"the winner is not significantly better than the default ({shown})"
    return ""


def rate_survey(survey: Survey) -> Survey:
    """The first candidate of each family with a third, one and three times its learning rate."""
    firsts: dict[str, tuple[dict[str, Any], Candidate]] = {}
    for point, candidate in zip(survey.points(), survey.expanded, strict=True):
        firsts.setdefault(family(candidate), (point, candidate))
    blocks = []
    for point, candidate in firsts.values():
        name = rate_name(candidate)
        own = getattr(candidate.recipe.training, name)
        rates = [float(f"{own * factor:.3g}") for factor in RATE_FACTORS]
        blocks.append(Block(set=point).with_axis(f"training.{name}", rates))
    seed = 1 + max(survey.seeds)
    fields = {"blocks": blocks, "seeds": (seed,), "budget": None, "rounds": (), "on": "report"}
    return survey.changed(**fields, name=f"{survey.name}, learning rates")


def with_best_rates(survey: Survey, rates: Survey, ledger: Ledger) -> Survey:
    """Every candidate with the learning rate that was best for its family."""
    ranked = sorted(rates.trials(), key=lambda trial: -ledger.progress(trial.id).rank)
    best = {family(trial.candidate): trial.recipe.training for trial in reversed(ranked)}
    blocks = []
    for point, candidate in zip(survey.points(), survey.expanded, strict=True):
        name = rate_name(candidate)
        rate = getattr(best[family(candidate)], name)
        blocks.append(Block(set={**point, f"training.{name}": rate}))
    return survey.changed(blocks=blocks)


def family(candidate: Candidate) -> str:
    return candidate.recipe.sharing_plan().family


def rate_name(candidate: Candidate) -> str:
    """The learning rate that matters: of the heads where the encoder is frozen."""
    is_frozen = family(candidate).startswith("frozen")
    return "head_learning_rate" if is_frozen else "learning_rate"
