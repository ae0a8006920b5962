"""`mops tune`"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from mops.api.progress import SurveyScreen, print_warnings
from mops.api.survey import make_executor
from mops.cli.options import COUNT, JSON, PATH, read_recipe, recipe_options
from mops.cli.screen import echo, echo_yaml, print_table, respond
from mops.cli.survey import ENGINE, engine_options
from mops.errors import UsageError
from mops.surveys import tune
from mops.surveys.design import Survey
from mops.surveys.greedy import first_regimes, regime_survey, search_regimes
from mops.surveys.run import begin, train_round

TRIALS = 12
FEWEST = 2  # seeds of a greedy search


@click.command()
@recipe_options
@click.option("--trials", type=click.IntRange(min=2), show_default="12",
              help="Settings to try, including the recipe's own.")  # fmt: skip
@click.option("--space", metavar="FILE", type=PATH,
              help="Search space in YAML; default: plan, rates, loss weights, budget.")  # fmt: skip
@click.option("--greedy", is_flag=True,
              help="Search the letters S and I of the plan instead, one at a time.")  # fmt: skip
@click.option("--seeds", type=COUNT, default=3,
              help="Fresh seeds for the comparison of winner and default; with --greedy also the "
              "seeds of each plan.")  # fmt: skip
@click.option("--out", type=PATH, default=Path("surveys/tune"), help="Folder of all trials.")
@engine_options
@click.option("--dry-run", is_flag=True, help="Print the settings to try and stop.")
@JSON
def command(
    trials: int | None,
    space: Path | None,
    greedy: bool,
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

    With --greedy every layer that the tasks share or have individually is tried the other way
    round. The change that gains most on half of the validation rows is made, until none gains
    more than the noise; the other half judges the result.

    \b
    Example:
      mops tune --data sample --trials 12 --set training.max_steps=120
      mops tune --data sample --greedy --plan frozen+late:SSS --set training.max_steps=120
    """
    engine = {key: options.pop(key) for key in ENGINE}
    recipe = tune.budget_in_steps(read_recipe(**options))
    if greedy and (trials or space or seeds < FEWEST):
        raise UsageError(
            f"--greedy tries the letters of the plan with {FEWEST} or more --seeds, which tell how "
            "large the noise is; leave out --trials and --space"
        )
    if greedy:
        survey = regime_survey(recipe, first_regimes(recipe), seeds)
    else:
        draws = tune.read_space(space) if space else tune.default_space(recipe)
        survey = tune.plan_search(recipe, draws, trials or TRIALS)
    if dry_run:
        return echo_yaml(survey.to_yaml())
    ledger = begin(survey, out)

    def train(more: Survey) -> None:
        with SurveyScreen(more, out) as screen:
            train_round(more.trials(), make_executor(**engine)(ledger, screen))

    if greedy:
        result = search_regimes(recipe, out, train, seeds)
    else:
        with SurveyScreen(survey, out) as screen:
            result = tune.run_search(survey, make_executor(**engine)(ledger, screen), seeds)
    return respond(as_json, asdict(result), show, result, out)


def show(result: tune.SearchResult, out: Path) -> None:
    rows = [
        [
            f"{trial.name}{' (default)' if trial.name == result.tried[0].name else ''}",
            str(trial.seed),
            f"{trial.state}{', winner' if trial.name == result.winner else ''}",
            f"{trial.reached:.0%}",
            "" if trial.score is None else f"{trial.score:.3f}",
        ]
        for trial in result.tried
    ]
    for move in result.moves:
        change = "taken" if move.is_taken else "not more than noise"
        echo(f"{move.plan} -> {move.best}: {move.gain.in_words}, {change}")
    columns = ["trial", "seed", "state", "steps", "score"]
    chooses = "half of them choose" if result.moves else "by which the search chooses"
    note = f"score: the best on the validation rows, {chooses}"
    print_table(f"{len(rows)} trials by {result.best_by}", columns, rows, note)
    winner = next(trial for trial in result.tried if trial.name == result.winner)
    settings = ", ".join(f"{key}={value}" for key, value in winner.settings.items())
    echo(f"winner: {winner.name} ({settings})")
    if result.difference is not None:
        count = len(result.seeds)
        echo(f"winner minus default on {count} fresh seed(s): {result.difference.in_words}")
    print_warnings([result.warning] if result.warning else [])
    echo(f"its run: {out / 'trials' / winner.id}")
