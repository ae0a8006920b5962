"""`mops survey`"""

from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from mops.cli.options import (
    ADDRESS,
    COUNT,
    DEVICE,
    FOLDS,
    JSON,
    PATH,
    STRICT,
    TIME,
    parse_values,
    read_recipe,
    refuse_leaks,
    source_options,
    stack,
)
from mops.cli.report import report_of
from mops.cli.screen import (
    SurveyScreen,
    print_results,
    print_summary,
    print_table,
    print_warnings,
    respond,
)
from mops.data.dataset import dataset_key, read_dataset
from mops.errors import UsageError
from mops.surveys.budget import Estimator, Forecast, fit_budget, fit_race
from mops.surveys.design import Survey, read_survey
from mops.surveys.executors import LocalExecutor, RayExecutor
from mops.surveys.experiments import DEFAULT, EXPERIMENTS, named_survey, tasks_for
from mops.surveys.ledger import STATES, Ledger
from mops.surveys.pack import read_pack, write_pack
from mops.surveys.results.caveats import list_names
from mops.surveys.results.judge import judge_survey
from mops.surveys.results.transfer import transfer_table
from mops.surveys.run import FILE, begin, continued, open_survey, run_survey, train_round
from mops.surveys.tune import RATES_UNTIL, rate_survey, with_best_rates
from mops.tables import format_bytes, format_count, format_seconds
from mops.training.machine import own_cores

SOURCE = ("config", "data", "encoder", "tasks", "device")  # options of the recipe
ENGINE = ("jobs", "engine", "address")
Executor = partial[LocalExecutor] | partial[RayExecutor]


def parse_seeds(text: str) -> int | list[int]:
    try:
        seeds = [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"--seeds {text!r}: give a number of seeds, or seeds as 1,2,3") from None
    return seeds[0] if len(seeds) == 1 else seeds


engine_options = stack(
    click.option("--jobs", type=COUNT, default=1,
                 help="Trials at a time; the cores are divided among them."),
    click.option("--engine", type=click.Choice(["local", "ray"]), default="local",
                 help="Processes on this machine, or Ray tasks."),
    ADDRESS,
)  # fmt: skip
PLANS = click.option(
    "--plan", "plans", metavar="SHORT", multiple=True, help="A plan to compare. Repeatable."
)


@click.command()
@click.argument("what", metavar="[NAME|FILE|DIR]", default=DEFAULT)
@source_options
@DEVICE
@PLANS
@click.option("--values", metavar="KEY=A,B", type=parse_values, multiple=True,
              help="Compare these values of a key of the recipe, for example encoder=minilm,DIR. "
                   "Repeatable: all combinations.")  # fmt: skip
@click.option("--seeds", metavar="N|A,B", type=parse_seeds,
              help="The number of seeds, or the seeds.")  # fmt: skip
@FOLDS
@click.option("--max-steps", type=COUNT, help="Steps of every trial.")
@click.option("--budget", metavar="1h", callback=TIME,
              help="Time for all: a race, or with --seeds the steps that fit.")  # fmt: skip
@click.option("--tune-rates", is_flag=True,
              help="First find a learning rate for each family of plans.")  # fmt: skip
@click.option("--out", type=PATH, help="Folder; default surveys/NAME.")
@engine_options
@click.option("--more-seeds", type=COUNT, help="Train so many new seeds of a survey in a folder.")
@click.option("--only", metavar="NAME", multiple=True,
              help="With --more-seeds: of these candidates. Repeatable.")  # fmt: skip
@click.option("--from", "pack", metavar="FILE", type=PATH,
              help="Go on from a packed survey; --out names the folder.")  # fmt: skip
@click.option("--keep", type=click.Choice(["best", "all", "none"]), default="best",
              help="Models to keep; best: one seed per candidate.")  # fmt: skip
@click.option("--retry", is_flag=True, help="Train failed trials again.")
@click.option("--retrain", is_flag=True,
              help="Train all trials anew where data, encoder or code have changed.")  # fmt: skip
@click.option("--pack", "packed", metavar="FILE", type=PATH,
              help="Write the survey in a folder as one file, and stop.")  # fmt: skip
@STRICT
@click.option("--list", "mode", flag_value="list", help="List the named experiments and stop.")
@click.option("--dry-run", "mode", flag_value="dry-run",
              help="Print trials, sizes and estimated time and stop.")  # fmt: skip
@click.option("--status", "mode", flag_value="status",
              help="Print the states of the trials and results so far.")  # fmt: skip
@JSON
def command(
    what: str,
    out: Path | None,
    mode: str | None,
    as_json: bool,
    pack: Path | None,
    packed: Path | None,
    more_seeds: int | None,
    only: tuple[str, ...],
    tune_rates: bool,
    keep: str,
    retry: bool,
    retrain: bool,
    strict: bool,
    **options: Any,
) -> None:
    """Train many plans under one budget, measure their costs, and compare them.

    NAME is a named experiment (--list shows them; default: everything), FILE a survey of your own
    in YAML, DIR the folder of a survey that was begun. With --budget a survey is a race: all
    candidates get a first seed, the better ones more, until the choice is settled or the time is
    spent. Finished trials are never repeated: the same command resumes a survey that was stopped or
    killed, and a larger survey in the same folder trains only what is new.

    \b
    Example:
      mops survey --data sample --budget 10m
      mops survey trunks --data my-data/ --seeds 3 --dry-run
      mops survey encoders --values encoder=minilm,bert-base/ --dry-run
      mops survey my-survey.yaml --jobs 2
      mops survey surveys/everything --more-seeds 2 --only shared --only hybrid:3
      mops survey surveys/everything --pack everything.mops
    """
    if mode == "list":
        return list_experiments(as_json)
    is_begun = (Path(what) / FILE).is_file()
    name = pack.stem if pack else Path(what).stem
    folder = Path(what) if is_begun else out or Path("surveys") / name
    if pack:
        read_pack(pack, folder)
    if mode == "status":
        return show_status(folder, as_json)
    if packed:
        size = write_pack(folder, packed)
        return click.echo(f"{packed}: {format_bytes(size)}")
    engine = {key: options.pop(key) for key in ENGINE}
    source = {key: options.pop(key) for key in SOURCE}
    if is_begun or pack or more_seeds or only:
        data = source.pop("data")
        survey = begun_survey(folder, data, more_seeds, only, **options, **source)
    else:
        survey = vary(base_survey(what, source), **options)
        if tune_rates and mode != "dry-run":
            survey = find_rates(survey, folder, make_executor(**engine))
        survey = continued(survey, folder) if options["budget"] else survey
    recipes = {dataset_key(one.recipe): one.recipe for one in survey.candidates() if strict}
    refuse_leaks(leak for recipe in recipes.values() for leak in read_dataset(recipe).leaks)
    if mode == "dry-run":
        return print_forecast(survey, as_json)
    more = {"keep": keep, "retrain": retrain}
    return run(survey, folder, make_executor(**engine), as_json, retry, **more)


def run(
    survey: Survey, folder: Path, executor: Executor, as_json: bool, retry: bool, **more: Any
) -> None:
    """Train what is left of the survey, and print its results."""
    if retry:
        Ledger(folder).forget_failures()
    with SurveyScreen(survey, folder) as screen:
        results = run_survey(survey, folder, screen, executor=executor, **more)
    respond(as_json, results.to_data(), print_results, results)
    transfer = transfer_table(survey, folder)
    if transfer.rows and not as_json:
        print_table(transfer.title, transfer.columns, transfer.texts, transfer.note)
    page = report_of(folder)
    if page and not as_json:
        click.echo(f"report: {page}")


def find_rates(survey: Survey, folder: Path, executor: Executor) -> Survey:
    """Half a training with each of three learning rates, for each family of plans."""
    rates, folder = rate_survey(survey), folder.with_name(f"{folder.name}-rates")
    ledger = begin(rates, folder)
    with SurveyScreen(rates, folder) as screen:
        train_round(rates.trials(), executor(ledger, screen), RATES_UNTIL)
    return with_best_rates(survey, rates, ledger)


def make_executor(jobs: int, engine: str = "local", address: str | None = None) -> Executor:
    if address and engine != "ray":
        raise UsageError("--address belongs to --engine ray")
    if engine == "ray":  # each job gets so many cores, on whatever machine it runs
        cpus = max(1, own_cores() // jobs)
        return partial(RayExecutor, workers=jobs, address=address, cpus=cpus)
    return partial(LocalExecutor, workers=jobs)


def base_survey(what: str, source: dict[str, Any]) -> Survey:
    """A survey file, or a named experiment on the given data."""
    is_file = what.endswith((".yaml", ".yml"))
    if is_file and not any(source.values()):
        return read_survey(what)
    if not is_file and source["data"] and not source["tasks"]:
        source = source | {"tasks": tasks_for(what, source["data"])}
    recipe = read_recipe(**source)
    return read_survey(what, recipe) if is_file else named_survey(what, recipe)


def begun_survey(
    folder: Path, data: str | None, more_seeds: int | None, only: tuple[str, ...], **design: Any
) -> Survey:
    """The survey in a folder, with its data elsewhere or more seeds where they are asked for."""
    if given := [name for name, value in design.items() if value]:
        raise UsageError(
            f"{folder} holds a survey with a design of its own, which {', '.join(given)} would "
            "change; name the experiment and another --out, or add seeds with --more-seeds"
        )
    if only and not more_seeds:
        raise UsageError("--only belongs to --more-seeds")
    survey = open_survey(folder)
    survey = survey.with_data(Path(data)) if data else survey
    return survey.with_more_seeds(more_seeds, only) if more_seeds else survey


def vary(
    survey: Survey,
    *,
    plans: tuple[str, ...],
    max_steps: int | None,
    values: tuple[tuple[str, list[Any]], ...] = (),
    settings: tuple[tuple[str, Any], ...] = (),
    seeds: int | list[int] | None = None,
    folds: int | None = None,
    budget: float | None = None,
) -> Survey:
    if max_steps and budget and seeds is not None:
        raise UsageError(
            "--budget and --seeds give the number of steps, and so does --max-steps; leave out one"
        )
    survey = survey.with_plans(plans) if plans else survey
    survey = survey.with_values(dict(values)) if values else survey
    own = {"training.folds": folds} if folds else {}
    survey = survey.with_settings(dict(settings) | own) if settings or own else survey
    survey = survey.changed(seeds=seeds) if seeds is not None else survey
    survey = survey.changed(steps=max_steps) if max_steps else survey
    if not budget:
        return survey
    fitted = (fit_race if seeds is None else fit_budget)(survey, budget)
    print_warnings([fitted.warning] if fitted.warning else [])
    return fitted.survey


def print_forecast(survey: Survey, as_json: bool) -> None:
    """The candidates with their sizes and the estimated time, before anything is trained."""
    forecast = Estimator().survey(survey)
    facts = {
        "survey": survey.to_data(),
        "candidates": [asdict(estimate) for estimate in forecast.candidates],
        "trials": [{"id": trial.id, "name": trial.name} for trial in survey.trials()],
        "encode_seconds": forecast.encode_seconds,
        "seconds": forecast.seconds,
    }
    respond(as_json, facts, show_forecast, forecast)


def show_forecast(forecast: Forecast) -> None:
    survey, once = forecast.survey, forecast.encode_seconds
    rows = [
        [trial.name, f"{trial.steps:,}", format_count(trial.parameters),
         format_count(trial.trained), format_seconds(trial.seconds)]
        for trial in forecast.candidates
    ]  # fmt: skip
    columns = ["candidate", "steps", "parameters", "trained", "a trial"]
    print_table(f"{survey.name}: {survey.source or 'a survey'}", columns, rows)
    click.echo(
        f"{len(survey.trials())} trials ({len(rows)} candidates x {len(survey.seeds)} seed(s)), "
        f"about {format_seconds(forecast.seconds)} one after the other"
        + (f", of which {format_seconds(once)} to encode texts once" if once else "")
        + f"; compared with {survey.baseline}; scored on {survey.on}"
    )
    candidates: dict[str, list[str]] = {}  # by warning
    for trial in forecast.candidates:
        for warning in trial.warnings:
            candidates.setdefault(warning, []).append(trial.name)
    for text, names in candidates.items():
        is_general = len(names) == len(forecast.candidates)
        who = "all candidates" if is_general else list_names(names, "; ")
        print_warnings([f"{who}: {text}"])


def list_experiments(as_json: bool) -> None:
    keys = ("name", "about", "source", "differs", "hours", "seeds")
    facts = [{key: getattr(entry, key) for key in keys} for entry in EXPERIMENTS.values()]
    rows = [[e.name, e.about, e.source, f"{e.hours:g} h"] for e in EXPERIMENTS.values()]
    columns = ["name", "what it compares", "source", "takes"]
    respond(as_json, facts, print_table, "named experiments", columns, rows)


def show_status(folder: Path, as_json: bool) -> None:
    survey, ledger = open_survey(folder), Ledger(folder)
    states = {trial.name: ledger.state(trial.id) for trial in survey.trials()}
    results = judge_survey(survey, folder)
    counts = Counter(states.values())
    shown = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    if not as_json:
        click.echo(f"{survey.name}: {len(states)} trials: {shown}")
    respond(as_json, {"states": states, "summary": results.to_data()}, print_summary, results)
