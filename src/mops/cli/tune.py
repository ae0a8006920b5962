"""`mops tune`"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from mops.cli.options import COUNT, JSON, PATH, read_recipe, recipe_options
from mops.cli.screen import SurveyScreen, print_table, print_warnings, respond
from mops.cli.survey import ENGINE, engine_options, make_executor
from mops.surveys import tune
from mops.surveys.run import begin


@click.command()
@recipe_options
@click.option("--trials", type=click.IntRange(min=2), default=12,
              help="Settings to try, including the recipe's own.")  # fmt: skip
@click.option("--space", metavar="FILE", type=PATH,
              help="Search space in YAML; default: plan, rates, loss weights, budget.")  # fmt: skip
@click.option("--seeds", type=COUNT, default=3,
              help="Fresh seeds for the comparison of winner and default.")  # fmt: skip
@click.option("--out", type=PATH, default=Path("surveys/tune"), help="Folder of all trials.")
@engine_options
@click.option("--dry-run", is_flag=True, help="Print the settings to try and stop.")
@JSON
def command(
    trials: int,
    space: Path | None,
    seeds: int,
    out: Path,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Search plan, learning rates, loss weights and budget together.

    The first trial is the recipe itself, the default. The others are drawn from the space. All are
    trained to a quarter of their steps, the better half to half of them, and the best to the end;
    the default always goes on. Winner and default are then trained with fresh seeds and compared.
    All trials are runs in one survey folder; the same command resumes a search. A space has one
    line for each key:

    \b
      plan: {choice: [...]}
      training.learning_rate: {log_uniform: [1e-5, 1e-4]}
      training.dropout: {uniform: [0, 0.3]}

    \b
    Example:
      mops tune --data sample --trials 12 --set training.max_steps=120
    """
    engine = {key: options.pop(key) for key in ENGINE}
    recipe = tune.budget_in_steps(read_recipe(**options))
    draws = tune.read_space(space) if space else tune.default_space(recipe)
    survey = tune.plan_search(recipe, draws, trials)
    if dry_run:
        return click.echo(survey.to_yaml(), nl=False)
    ledger = begin(survey, out)
    with SurveyScreen(survey, out) as screen:
        executor = make_executor(**engine)(ledger, screen)
        result = tune.run_search(survey, executor, seeds)
    return respond(as_json, asdict(result), show, result, out)


def show(result: tune.SearchResult, out: Path) -> None:
    rows = [
        [
            f"{trial.name}{' (default)' if n == 0 else ''}",
            f"{trial.state}{', winner' if trial.name == result.winner else ''}",
            f"{trial.reached:.0%}",
            "" if trial.score is None else f"{trial.score:.3f}",
        ]
        for n, trial in enumerate(result.tried)
    ]
    columns = ["trial", "state", "steps", "score"]
    note = "score: the best on the validation rows, by which the search chooses"
    print_table(f"{len(rows)} trials by {result.best_by}", columns, rows, note)
    winner = next(trial for trial in result.tried if trial.name == result.winner)
    settings = ", ".join(f"{key}={value}" for key, value in winner.settings.items())
    click.echo(f"winner: {winner.name} ({settings})")
    if result.difference is not None:
        count = len(result.seeds)
        click.echo(f"winner minus default on {count} fresh seed(s): {result.difference.in_words}")
    print_warnings([result.warning] if result.warning else [])
    click.echo(f"its run: {out / 'trials' / winner.id}")
