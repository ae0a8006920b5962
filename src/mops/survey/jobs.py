"""Jobs: which trials one process trains. Small networks on one frozen encoder go together."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from mops.combining import SUM
from mops.recipes import Recipe
from mops.sharing import TRUNK_FROZEN
from mops.survey.trials import Trial


@dataclass(frozen=True)
class Job:
    """One trial, or several that are trained as one batch."""

    trials: tuple[Trial, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(trial.id for trial in self.trials)

    @property
    def name(self) -> str:
        if len(self.trials) == 1:
            return self.trials[0].name
        return f"{len(self.trials)} trials on one frozen encoder"


def plan_jobs(trials: Sequence[Trial], workers: int = 1) -> list[Job]:
    """In the given order; batches are cut so that every worker has one."""
    groups: dict[Hashable, list[Trial]] = {}
    for trial in trials:
        key = family(trial.recipe) if is_small(trial.recipe) else trial.id
        groups.setdefault(key, []).append(trial)
    jobs = []
    for group in groups.values():
        parts = min(workers, len(group))
        jobs += [Job(tuple(group[n::parts])) for n in range(parts)]
    return jobs


def is_small(recipe: Recipe) -> bool:
    """Whether it trains only late layers and heads; the process that trains it looks closer."""
    plan, training = recipe.sharing_plan(), recipe.training
    is_plain = not (plan.additions or plan.feeds or plan.pull or training.stages)
    is_summed = training.gradients == SUM and isinstance(training.loss_weights, dict)
    is_frozen = plan.rates[: len(TRUNK_FROZEN)] == TRUNK_FROZEN
    return is_frozen and is_plain and is_summed and training.augment is None


def family(recipe: Recipe) -> Hashable:
    """Recipes of one family read the same texts in the same way through the same encoder."""
    data, training = recipe.to_data(), recipe.training
    reading = [training.pair, training.pool, list(training.features), training.max_length]
    return json.dumps([data["tasks"], data["encoder"], reading], sort_keys=True)
