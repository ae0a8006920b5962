"""`mops survey`"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mops.cli.main import echo_json
from mops.cli.options import CONFIG, DATA, DEVICE, ENCODER, JSON, SET, TASKS, parse_setting
from mops.errors import UsageError

if TYPE_CHECKING:
    from mops.surveys.design import Survey
    from mops.surveys.run import MakeExecutor


@click.command()
@click.argument("what", metavar="[NAME|FILE]", required=False)
@CONFIG
@DATA
@ENCODER
@click.option("--plan", "plans", metavar="SHORT", multiple=True, help="These plans. Repeatable.")
@TASKS
@click.option("--seeds", metavar="N|A,B", help="How many seeds, or which.")
@click.option("--max-steps", type=click.IntRange(min=1), help="Steps of every trial.")
@click.option("--budget", metavar="20m", help="As many steps as fit into this time in all.")
@DEVICE
@SET
@click.option("--out", type=click.Path(path_type=Path), help="Folder; default surveys/NAME.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True,
              help="Trials at a time; each gets its share of the cores.")  # fmt: skip
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True,
              help="Processes on this machine, or Ray tasks.")  # fmt: skip
@click.option("--address", metavar="HOST:PORT", help="Of a Ray cluster; default: this machine.")
@click.option("--keep", type=click.Choice(["best", "all", "none"]), default="best",
              show_default=True, help="Models that stay: a candidate's best.")  # fmt: skip
@click.option("--retry", is_flag=True, help="Train trials that failed once more.")
@click.option("--list", "is_list", is_flag=True, help="List the named experiments and stop.")
@click.option("--dry-run", is_flag=True, help="Print trials, sizes and estimated time and stop.")
@click.option("--status", is_flag=True, help="Print how far it is, and the table so far.")
@JSON
def command(
    what: str | None,
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
    """Train many plans under one budget, measure them, and say which differences are real.

    NAME is a named experiment (--list shows them; default: everything), FILE a survey of your own
    in YAML. Finished trials are never repeated: the same command goes on where it was, whatever
    stopped it, and a larger survey in the same folder trains only what is new.

    \b
    Example:
      mops survey --data sample --budget 10m
      mops survey trunks --data my-data/ --seeds 3 --dry-run
      mops survey my-survey.yaml --jobs 2
      mops survey --status --out surveys/everything
    """
    if is_list:
        list_experiments(as_json)
    elif status:
        show_status(out or default_folder(what), as_json)
    elif dry_run:
        from mops.cli.survey_forecast import print_forecast

        print_forecast(read_design(what, jobs, **options), as_json)
    else:
        survey = read_design(what, jobs, **options)
        folder = out or Path("surveys") / survey.name
        run(survey, folder, choose_executor(engine, jobs, address), jobs, keep, retry, as_json)


def run(
    survey: Survey,
    folder: Path,
    executor: MakeExecutor,
    jobs: int,
    keep: str,
    retry: bool,
    as_json: bool,
) -> None:
    from mops.cli.report import report_of
    from mops.cli.screen import OUT
    from mops.cli.survey_screen import SurveyScreen
    from mops.cli.survey_tables import print_decision, print_summary
    from mops.surveys.ledger import Ledger
    from mops.surveys.results.recommend import recommend
    from mops.surveys.run import run_survey

    if retry:
        Ledger(folder).forget_failures()
    with SurveyScreen(survey, folder) as screen:
        summary = run_survey(survey, folder, screen, executor=executor, workers=jobs, keep=keep)
    if as_json:
        report_of(folder)
        echo_json(summary.to_data())
        return
    print_summary(summary)
    print_decision(recommend(summary))
    OUT.print(f"results in {folder}: summary.md, summary.csv, summary.json", soft_wrap=True)
    if page := report_of(folder):
        OUT.print(f"report: {page}", soft_wrap=True)


# ------------------------------------------------------------------ which survey


def read_design(
    what: str | None,
    jobs: int,
    config: Path | None,
    data: str | None,
    encoder: str | None,
    plans: tuple[str, ...],
    tasks: str | None,
    seeds: str | None,
    max_steps: int | None,
    budget: str | None,
    device: str | None,
    settings: tuple[str, ...],
) -> Survey:
    """The survey that the options describe."""
    from mops.surveys.experiments import DEFAULT

    given = {"config": config, "data": data, "encoder": encoder, "tasks": tasks, "device": device}
    survey = base_survey(what or DEFAULT, given)
    if plans:
        survey = survey.with_plans(plans)
    if settings:
        survey = survey.with_settings(dict(map(parse_setting, settings)))
    if seeds:
        survey = survey.with_seeds(parse_seeds(seeds))
    if max_steps and budget:
        raise UsageError("--max-steps and --budget are two ways to say the same; give one")
    if max_steps:
        survey = survey.with_steps(max_steps)
    return within(survey, budget, jobs) if budget else survey


def within(survey: Survey, budget: str, jobs: int) -> Survey:
    """As many steps as fit into the time."""
    from mops.cli.screen import print_warnings
    from mops.surveys.budget import fit_budget
    from mops.units import SECONDS, parse_amount

    fitted = fit_budget(survey, parse_amount(budget, SECONDS, "--budget"), jobs=jobs)
    print_warnings([fitted.warning] if fitted.warning else [])
    return fitted.survey


def base_survey(what: str, given: dict[str, Any]) -> Survey:
    """A file of the user's own, or a named experiment on the named data."""
    from mops.cli.options import read_recipe
    from mops.surveys.design import read_survey
    from mops.surveys.experiments import named_survey, tasks_for

    is_file = what.endswith((".yaml", ".yml"))
    if is_file and not any(given.values()):
        return read_survey(what)
    if not is_file and given["data"] and not given["tasks"]:
        given = given | {"tasks": ",".join(tasks_for(what, given["data"]) or ()) or None}
    recipe = read_recipe(**given, plan=None, seed=None, settings=())
    return read_survey(what, recipe) if is_file else named_survey(what, recipe)


def parse_seeds(text: str) -> int | list[int]:
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"--seeds {text!r}: a number of seeds, or seeds as 1,2,3") from None
    return found[0] if len(found) == 1 else found


def default_folder(what: str | None) -> Path:
    from mops.surveys.experiments import DEFAULT

    return Path("surveys") / Path(what or DEFAULT).stem


def choose_executor(engine: str, jobs: int, address: str | None) -> MakeExecutor:
    """Each Ray job gets this machine's cores divided by `jobs`, on whatever machine it runs."""
    if engine == "ray":
        from mops.surveys.ray_executor import RayExecutor
        from mops.training.machine import own_cores

        return partial(RayExecutor, address=address, cpus=max(1, own_cores() // jobs))
    from mops.surveys.local import LocalExecutor

    if address:
        raise UsageError("--address belongs to --engine ray")
    return partial(LocalExecutor, workers=jobs)


# ------------------------------------------------------------------ what is known


def list_experiments(as_json: bool) -> None:
    from mops.surveys.experiments import EXPERIMENTS

    if as_json:
        keys = ("name", "about", "source", "differs", "hours", "seeds")
        echo_json([{key: getattr(of, key) for key in keys} for of in EXPERIMENTS.values()])
        return
    from mops.cli.screen import print_table

    rows = [[of.name, of.about, of.source, f"{of.hours:g} h"] for of in EXPERIMENTS.values()]
    print_table("named experiments", ["name", "what it compares", "source", "takes"], rows)


def show_status(folder: Path, as_json: bool) -> None:
    from collections import Counter

    from mops.cli.screen import OUT
    from mops.cli.survey_tables import print_summary
    from mops.surveys.ledger import STATES, Ledger
    from mops.surveys.results.judge import judge_survey
    from mops.surveys.run import open_survey

    survey, ledger = open_survey(folder), Ledger(folder)
    states = {trial.name: ledger.state(trial.id) for trial in survey.trials()}
    summary = judge_survey(survey, folder)
    if as_json:
        echo_json({"states": states, "summary": summary.to_data()})
        return
    counts = Counter(states.values())
    told = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    OUT.print(f"{survey.name}: {len(states)} trials: {told}", soft_wrap=True)
    print_summary(summary)
