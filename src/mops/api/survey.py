"""A survey from the words of a person: its design, its training, its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mops.api.progress import SurveyScreen, print_warnings
from mops.api.results import SurveyRun
from mops.config.recipe import Recipe
from mops.data.compose import given_recipe
from mops.data.dataset import dataset_key, read_dataset
from mops.data.doubts import refuse_leaks
from mops.errors import RecipeError, UsageError
from mops.files import to_path
from mops.surveys.budget import fit_budget, fit_race
from mops.surveys.design import Survey, read_survey
from mops.surveys.executors import LocalExecutor, RayExecutor
from mops.surveys.experiments import DEFAULT, named_survey
from mops.surveys.ledger import Ledger
from mops.surveys.run import FILE, begin, continued, open_survey, run_survey, train_round
from mops.surveys.tune import RATES_UNTIL, rate_survey, with_best_rates
from mops.tables import TIMES
from mops.training.machine import own_cores

Executor = partial[LocalExecutor] | partial[RayExecutor]
Plan = str | Mapping[str, Any]


def survey(
    recipe: Recipe | str | Path | None = None,
    what: str | Path = DEFAULT,
    *,
    plan: Plan | Sequence[Plan] = (),
    values: Mapping[str, Sequence[Any]] | None = None,
    set: Mapping[str, Any] | None = None,
    seeds: int | Sequence[int] | None = None,
    folds: int | None = None,
    max_steps: int | None = None,
    budget: str | float | None = None,
    tune_rates: bool = False,
    out: str | Path | None = None,
    data: str | Path | None = None,
    encoder: str | Path | None = None,
    more_seeds: int | None = None,
    only: Sequence[str] = (),
    keep: str = "best",
    retry: bool = False,
    retrain: bool = False,
    strict: bool = False,
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
) -> SurveyRun:
    """Train many plans under one budget, measure their costs, and compare them.

    `what` is a named experiment on the tasks of the recipe, a survey file, or the folder of a
    survey that was begun (`data`, `encoder`: where its files are now). The other words are the
    options of `mops survey`; a budget is seconds, or a text like "1h". The same call resumes a
    survey that was stopped or killed, and trains nothing twice.
    """
    recipe = None if recipe is None else given_recipe(recipe)
    what = to_path(what, "what")
    executor, folder = make_executor(jobs, engine, address), survey_folder(what, out)
    planned = plan_survey(
        recipe,
        what,
        folder,
        find_rates=partial(find_rates, folder=folder, executor=executor) if tune_rates else None,
        plan=[plan] if isinstance(plan, str | Mapping) else plan,
        values=values,
        set=set,
        seeds=seeds,
        folds=folds,
        max_steps=max_steps,
        budget=budget,
        data=data,
        encoder=encoder,
        more_seeds=more_seeds,
        only=only,
        strict=strict,
    )
    return train_survey(planned, folder, executor, keep=keep, retry=retry, retrain=retrain)


def train_survey(
    planned: Survey,
    folder: Path,
    executor: Executor,
    *,
    keep: str = "best",
    retry: bool = False,
    retrain: bool = False,
) -> SurveyRun:
    """Train what is left of the survey."""
    if keep not in ("best", "all", "none"):
        raise UsageError(f"keep {keep!r}: allowed: best, all, none")
    if retry:
        Ledger(folder).forget_failures()
    with SurveyScreen(planned, folder) as screen:
        results = run_survey(planned, folder, screen, executor=executor, keep=keep, retrain=retrain)
    return SurveyRun(folder, planned, results)


def survey_folder(what: str | Path, out: str | Path | None) -> Path:
    """Where the survey lies or will lie."""
    if is_begun(what):
        return Path(what)
    return Path(out) if out else Path("surveys") / Path(what).stem


def is_begun(what: str | Path) -> bool:
    return (Path(what) / FILE).is_file()


def plan_survey(
    recipe: Recipe | None,
    what: str | Path,
    folder: Path,
    *,
    find_rates: Callable[[Survey], Survey] | None = None,
    budget: str | float | None = None,
    data: str | Path | None = None,
    encoder: str | Path | None = None,
    more_seeds: int | None = None,
    only: Sequence[str] = (),
    strict: bool = False,
    **design: Any,
) -> Survey:
    """The survey that these words describe; the folder says how far it has come."""
    seconds = None if budget is None else TIMES.read(budget, "budget")
    if is_begun(what) or more_seeds or only:
        given = {**design, "budget": budget, "recipe": recipe}
        survey = begun_survey(folder, more_seeds, only, data=data, encoder=encoder, **given)
        return without_leaks(survey, strict)
    for name, place in (("data", data), ("encoder", encoder)):
        if place is not None:
            raise UsageError(
                f"{name} {place}: there is no survey in {what}; the recipe names its {name}"
            )
    survey = vary(base_survey(str(what), recipe), budget=seconds, **design)
    survey = find_rates(survey) if find_rates else survey
    return without_leaks(continued(survey, folder) if seconds else survey, strict)


def without_leaks(survey: Survey, strict: bool) -> Survey:
    """The same survey; with `strict` one that trains on rows that it scores is refused."""
    recipes = {dataset_key(one.recipe): one.recipe for one in survey.candidates() if strict}
    refuse_leaks(leak for recipe in recipes.values() for leak in read_dataset(recipe).leaks)
    return survey


def base_survey(what: str, recipe: Recipe | None) -> Survey:
    """A survey file, or a named experiment on a recipe."""
    if what.endswith((".yaml", ".yml")):
        return read_survey(what, recipe)
    if recipe is None:
        raise RecipeError(
            f"experiment {what!r} needs a recipe; give one (mops.recipe), a survey file, or the "
            "folder of a survey that was begun"
        )
    return named_survey(what, recipe)


def begun_survey(
    folder: Path,
    more_seeds: int | None,
    only: Sequence[str],
    *,
    data: str | Path | None = None,
    encoder: str | Path | None = None,
    **design: Any,
) -> Survey:
    """The survey in a folder, with its files elsewhere or more seeds where they are asked for."""
    refuse_design(folder, design)
    if only and not more_seeds:
        raise UsageError("`only` belongs to `more_seeds`")
    survey = open_survey(folder)
    survey = survey.with_data(Path(data)) if data else survey
    survey = survey.with_encoder(str(encoder)) if encoder else survey
    return survey.with_more_seeds(more_seeds, only) if more_seeds else survey


def refuse_design(folder: Path, words: Mapping[str, Any]) -> None:
    if given := [name for name, value in words.items() if value]:
        raise UsageError(
            f"{folder} holds a survey with a design of its own, which {', '.join(given)} would "
            "change; name the experiment and another `out`, or add seeds with `more_seeds`"
        )


def vary(
    survey: Survey,
    *,
    plan: Sequence[Plan] = (),
    max_steps: int | None = None,
    values: Mapping[str, Sequence[Any]] | None = None,
    set: Mapping[str, Any] | None = None,
    seeds: int | Sequence[int] | None = None,
    folds: int | None = None,
    budget: float | None = None,
) -> Survey:
    """The survey with other plans, values, settings, seeds or steps."""
    if max_steps and budget and seeds is not None:
        raise UsageError(
            "`budget` and `seeds` give the number of steps, so does `max_steps`; leave out one"
        )
    survey = survey.with_plans(plan) if plan else survey
    survey = survey.with_values(values) if values else survey
    settings = {**(set or {}), **({"training.folds": folds} if folds else {})}
    survey = survey.with_settings(settings) if settings else survey
    survey = survey.changed(seeds=seeds) if seeds is not None else survey
    survey = survey.changed(steps=max_steps) if max_steps else survey
    if not budget:
        return survey
    fitted = (fit_race if seeds is None else fit_budget)(survey, budget)
    print_warnings([fitted.warning] if fitted.warning else [])
    return fitted.survey


def find_rates(survey: Survey, folder: Path, executor: Executor) -> Survey:
    """Half a training with each of three learning rates, for each family of plans."""
    rates, folder = rate_survey(survey), folder.with_name(f"{folder.name}-rates")
    ledger = begin(rates, folder)
    with SurveyScreen(rates, folder) as screen:
        train_round(rates.trials(), executor(ledger, screen), RATES_UNTIL)
    return with_best_rates(survey, rates, ledger)


def make_executor(jobs: int, engine: str = "local", address: str | None = None) -> Executor:
    """Processes on this machine, or Ray tasks: `jobs` trials at a time."""
    if engine not in ("local", "ray"):
        raise UsageError(f"engine {engine!r}: allowed: local, ray")
    if not isinstance(jobs, int) or jobs < 1:
        raise UsageError(f"jobs {jobs!r}: allowed: 1 or more trials at a time")
    if address and engine != "ray":
        raise UsageError("`address` belongs to the engine ray")
    if engine == "ray":  # each job gets so many cores, on whatever machine it runs
        cpus = max(1, own_cores() // jobs)
        return partial(RayExecutor, workers=jobs, address=address, cpus=cpus)
    return partial(LocalExecutor, workers=jobs)
