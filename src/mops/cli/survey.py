"""`mops survey`"""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import mops
from mops.api.progress import print_warnings
from mops.api.survey import is_begun, plan_survey, refuse_design, survey_folder
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
    source_options,
    stack,
)
from mops.cli.screen import echo, print_parts, print_results, print_summary, print_table, respond
from mops.errors import UsageError
from mops.reports import missing_packages
from mops.surveys.budget import Estimator, Forecast
from mops.surveys.design import Survey
from mops.surveys.experiments import DEFAULT, EXPERIMENTS, tasks_for
from mops.surveys.ledger import STATES, Ledger
from mops.surveys.pack import read_pack, write_pack
from mops.surveys.results.caveats import list_names
from mops.surveys.results.judge import judge_survey
from mops.surveys.run import open_survey
from mops.tables import format_bytes, format_count, format_seconds

DESIGN = (
    "plan", "values", "seeds", "folds", "max_steps", "budget", "more_seeds", "only", "strict",
)  # fmt: skip
TRAINING = ("tune_rates", "keep", "retry", "retrain")
ENGINE = ("jobs", "engine", "address")


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
PLAN = click.option("--plan", metavar="SHORT", multiple=True, help="A plan to compare. Repeatable.")


@click.command()
@click.argument("what", metavar="[NAME|FILE|DIR]", default=DEFAULT)
@source_options
@DEVICE
@PLAN
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
              help="Go on from a packed survey; --out names the folder, --data and --encoder "
                   "where its files are.")  # fmt: skip
@click.option("--keep", type=click.Choice(["best", "all", "none"]), default="best",
              help="Models to keep; best: one seed per candidate.")  # fmt: skip
@click.option("--retry", is_flag=True, help="Train failed trials again.")
@click.option("--retrain", is_flag=True,
              help="Train all trials anew where data, encoder or code have changed.")  # fmt: skip
@STRICT
@click.option("--pack", "packed", metavar="FILE", type=PATH,
              help="Write the survey in a folder as one file, and stop.")  # fmt: skip
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
    folder = survey_folder(pack.stem if pack else what, out)
    if pack:
        read_pack(pack, folder)
        what = str(folder)
    if mode == "status":
        return show_status(folder, as_json)
    if packed:
        size = write_pack(folder, packed)
        return echo(f"{packed}: {format_bytes(size)}")
    words, engine, training = (
        {key: options.pop(key) for key in keys} for keys in (DESIGN, ENGINE, TRAINING)
    )
    words |= {"values": dict(words["values"]), "set": dict(options.pop("settings"))}
    if is_begun(what) or words["more_seeds"] or words["only"]:
        words |= {name: options.pop(name) for name in ("data", "encoder")}
        recipe = None
        refuse_design(folder, options)
    else:
        recipe = recipe_of(what, options)
    if mode == "dry-run":
        return print_forecast(plan_survey(recipe, what, folder, **words), as_json)
    return show(mops.survey(recipe, what, out=out, **words, **engine, **training), as_json)


def recipe_of(what: str, source: dict[str, Any]) -> mops.Recipe | None:
    """The recipe of the options; none for a survey file that may name its own."""
    is_file = what.endswith((".yaml", ".yml"))
    if is_file and not any(source.values()):
        return None
    if not is_file and source["data"] and not source["tasks"]:
        source = source | {"tasks": tasks_for(what, source["data"])}
    return read_recipe(**source)


def show(run: mops.SurveyRun, as_json: bool) -> None:
    """Print the results of a survey and write its report, if the extra `report` is installed."""
    respond(as_json, run.results.to_data(), print_results, run.results)
    page = None if missing_packages() else run.report().page
    if not as_json:
        print_parts(run.transfer)
        if page:
            echo(f"report: {page}")


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
    echo(
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
        echo(f"{survey.name}: {len(states)} trials: {shown}")
    respond(as_json, {"states": states, "summary": results.to_data()}, print_summary, results)
