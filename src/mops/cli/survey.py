"""`mops survey`"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mops.cli.main import echo_json
from mops.cli.options import (
    CONFIG,
    DATA,
    DEVICE,
    ENCODER,
    JSON,
    PATH,
    SET,
    TASKS,
    parse_setting,
    read_recipe,
)
from mops.cli.screen import OUT, print_table, print_warnings
from mops.cli.survey_screen import SurveyScreen, print_decision, print_forecast, print_summary
from mops.errors import UsageError
from mops.surveys.budget import fit_budget
from mops.surveys.design import Survey, read_survey
from mops.surveys.experiments import DEFAULT, EXPERIMENTS, named_survey, tasks_for
from mops.surveys.ledger import STATES, Ledger
from mops.surveys.results.judge import judge_survey
from mops.surveys.results.recommend import recommend
from mops.units import SECONDS, parse_amount

if TYPE_CHECKING:
    from mops.surveys.run import MakeExecutor


@click.command()
@click.argument("what", metavar="[NAME|FILE]", default=DEFAULT)
@CONFIG
@DATA
@ENCODER
@click.option("--plan", "plans", metavar="SHORT", multiple=True,
              help="A plan to compare. Repeatable.")  # fmt: skip
@TASKS
@click.option("--seeds", metavar="N|A,B", help="The number of seeds, or the seeds.")
@click.option("--max-steps", type=click.IntRange(min=1), help="Steps of every trial.")
@click.option("--budget", metavar="20m", help="Choose the steps so that all trials take this time.")
@DEVICE
@SET
@click.option("--out", type=PATH, help="Folder; default surveys/NAME.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True,
              help="Trials at a time; the cores are divided among them.")  # fmt: skip
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True,
              help="Processes on this machine, or Ray tasks.")  # fmt: skip
@click.option("--address", metavar="HOST:PORT", help="A Ray cluster; default: this machine.")
@click.option("--keep", type=click.Choice(["best", "all", "none"]), default="best",
              show_default=True, help="Models to keep; best: one seed per candidate.")  # fmt: skip
@click.option("--retry", is_flag=True, help="Train failed trials again.")
@click.option("--list", "is_list", is_flag=True, help="List the named experiments and stop.")
@click.option("--dry-run", is_flag=True, help="Print trials, sizes and estimated time and stop.")
@click.option("--status", is_flag=True, help="Print the states of the trials and results so far.")
@JSON
def command(
    what: str,
    out: Path | None,
    jobs: int,
    engine: str,
    address: str | None,
    keep: str,
    retry: bool,
    is_list: bool,
    dry_run: bool,
    status: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Train many plans under one budget, measure their costs, and compare them.

    NAME is a named experiment (--list shows them; default: everything), FILE a survey of your own
    in YAML. Finished trials are never repeated: the same command resumes a survey that was stopped
    or killed, and a larger survey in the same folder trains only what is new.

    \b
    Example:
      mops survey --data sample --budget 10m
      mops survey trunks --data my-data/ --seeds 3 --dry-run
      mops survey my-survey.yaml --jobs 2
      mops survey --status --out surveys/everything
    """
    if is_list:
        list_experiments(as_json)
        return
    if status:
        show_status(out or Path("surveys") / Path(what).stem, as_json)
        return
    survey = read_design(what, jobs, **options)
    if dry_run:
        print_forecast(survey, as_json)
        return
    folder, executor = out or Path("surveys") / survey.name, choose_executor(engine, jobs, address)
    if retry:
        Ledger(folder).forget_failures()
    run(survey, folder, executor, jobs=jobs, keep=keep, as_json=as_json)


def run(
    survey: Survey, folder: Path, executor: MakeExecutor, *, jobs: int, keep: str, as_json: bool
) -> None:
    from mops.cli.report import report_of
    from mops.surveys.run import run_survey

    with SurveyScreen(survey, folder) as screen:
        results = run_survey(survey, folder, screen, executor=executor, workers=jobs, keep=keep)
    if as_json:
        report_of(folder)
        echo_json(results.to_data())
        return
    print_summary(results)
    print_decision(recommend(results))
    OUT.print(f"results in {folder}: summary.md, summary.csv, summary.json", soft_wrap=True)
    if page := report_of(folder):
        OUT.print(f"report: {page}", soft_wrap=True)


def choose_executor(engine: str, jobs: int, address: str | None = None) -> MakeExecutor:
    """Each Ray job gets this machine's cores divided by `jobs`, on whatever machine it runs."""
    from mops.surveys.executors import LocalExecutor, RayExecutor
    from mops.training.machine import own_cores

    if engine == "ray":
        return partial(RayExecutor, address=address, cpus=max(1, own_cores() // jobs))
    if address:
        raise UsageError("--address belongs to --engine ray")
    return partial(LocalExecutor, workers=jobs)


# ------------------------------------------------------------------ which survey


def read_design(
    what: str,
    jobs: int,
    *,
    plans: tuple[str, ...],
    settings: tuple[str, ...],
    seeds: str | None,
    max_steps: int | None,
    budget: str | None,
    **given: Any,
) -> Survey:
    """The survey that the options describe."""
    survey = base_survey(what, given)
    if plans:
        survey = survey.with_plans(plans)
    if settings:
        survey = survey.with_settings(dict(map(parse_setting, settings)))
    if seeds:
        survey = survey.with_seeds(parse_seeds(seeds))
    if max_steps and budget:
        raise UsageError("--max-steps and --budget both set the number of steps; give one of them")
    if max_steps:
        survey = survey.with_steps(max_steps)
    if budget:
        fitted = fit_budget(survey, parse_amount(budget, SECONDS, "--budget"), jobs=jobs)
        print_warnings([fitted.warning] if fitted.warning else [])
        survey = fitted.survey
    return survey


def base_survey(what: str, given: dict[str, Any]) -> Survey:
    """A survey file, or a named experiment on the given data."""
    is_file = what.endswith((".yaml", ".yml"))
    if is_file and not any(given.values()):
        return read_survey(what)
    if not is_file and given["data"] and not given["tasks"]:
        given = given | {"tasks": ",".join(tasks_for(what, given["data"]) or ()) or None}
    recipe = read_recipe(**given, settings=())
    return read_survey(what, recipe) if is_file else named_survey(what, recipe)


def parse_seeds(text: str) -> int | list[int]:
    try:
        seeds = [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"--seeds {text!r}: give a number of seeds, or seeds as 1,2,3") from None
    return seeds[0] if len(seeds) == 1 else seeds


# ------------------------------------------------------------------ --list and --status


def list_experiments(as_json: bool) -> None:
    if as_json:
        keys = ("name", "about", "source", "differs", "hours", "seeds")
        echo_json([{key: getattr(e, key) for key in keys} for e in EXPERIMENTS.values()])
        return
    rows = [[e.name, e.about, e.source, f"{e.hours:g} h"] for e in EXPERIMENTS.values()]
    print_table("named experiments", ["name", "what it compares", "source", "takes"], rows)


def show_status(folder: Path, as_json: bool) -> None:
    from mops.surveys.run import open_survey

    survey, ledger = open_survey(folder), Ledger(folder)
    states = {trial.name: ledger.state(trial.id) for trial in survey.trials()}
    results = judge_survey(survey, folder)
    if as_json:
        echo_json({"states": states, "summary": results.to_data()})
        return
    counts = Counter(states.values())
    shown = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    OUT.print(f"{survey.name}: {len(states)} trials: {shown}", soft_wrap=True)
    print_summary(results)
