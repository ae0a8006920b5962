"""`mops tune`"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mops.cli.main import echo_json
from mops.cli.options import JSON, PATH, read_recipe, recipe_options
from mops.cli.screen import OUT, print_table, print_warnings
from mops.cli.survey_screen import JobScreen
from mops.surveys.design import Survey
from mops.surveys.search_space import (
    EVALUATIONS,
    budget_in_steps,
    default_space,
    plan_search,
    read_space,
)

if TYPE_CHECKING:
    from mops.surveys.tune import SearchResult


@click.command()
@recipe_options
@click.option("--trials", type=click.IntRange(min=2), default=12, show_default=True,
              help="Settings to try, including the recipe's own.")  # fmt: skip
@click.option("--space", metavar="FILE", type=PATH,
              help="Search space in YAML; default: plan, rates, loss weights, budget.")  # fmt: skip
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True,
              help="Seeds for the final comparison of winner and default.")  # fmt: skip
@click.option("--cpus", type=click.FloatRange(min=0, min_open=True), default=1.0,
              show_default=True, help="Cores of each trial.")  # fmt: skip
@click.option("--address", metavar="HOST:PORT", help="A Ray cluster; default: this machine.")
@click.option("--out", type=PATH, default=Path("surveys/tune"),
              show_default=True, help="Folder of all trials.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the settings to try and stop.")
@JSON
def command(
    trials: int,
    space: Path | None,
    seeds: int,
    cpus: float,
    address: str | None,
    out: Path,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Search plan, learning rates, loss weights and budget together, with Ray Tune.

    The first trial is the recipe itself, the default; it is never stopped. The others are drawn
    from the space; trials that fall behind on the selection half are stopped early (ASHA). The
    winner is then compared with the default on the report half, which the search has not used. All
    trials are runs in one survey folder; the same command resumes a search. A space has one line
    for each key:

    \b
      plan: {choice: [...]}
      training.learning_rate: {log_uniform: [1e-5, 1e-4]}
      training.dropout: {uniform: [0, 0.3]}

    \b
    Example:
      mops tune --data sample --trials 12 --set training.max_steps=120
    """
    recipe = budget_in_steps(read_recipe(**options))
    survey = plan_search(recipe, read_space(space) if space else default_space(recipe), trials)
    if dry_run:
        click.echo(survey.to_yaml(), nl=False)
        return
    result = search(survey, out, seeds, cpus, address)
    if as_json:
        echo_json(asdict(result))
    else:
        show(result, out)


def search(survey: Survey, out: Path, seeds: int, cpus: float, address: str | None) -> SearchResult:
    """Run the search, then train winner and default with further seeds and compare them."""
    from mops.surveys.executors import LocalExecutor
    from mops.surveys.run import begin, train_round
    from mops.surveys.tune import judge_search, pick_winner, run_search

    ledger, trials = begin(survey, out), survey.trials()
    ledger.register(trials)
    names = {trial.id: trial.candidate.name for trial in trials}
    reached: dict[str, tuple[int, float]] = {}  # trial -> evaluations, best score so far

    def show_progress(trial_id: str, evaluations: int, score: float) -> None:
        reached[trial_id] = evaluations, score
        best, done = max(s for _, s in reached.values()), sum(n for n, _ in reached.values())
        facts = f"best so far {best:.3f}, now {names[trial_id]}"
        screen.update(completed=done, facts=facts)
        screen.print_event(f"evaluation {evaluations} of {names[trial_id]}, {facts}")

    with JobScreen("searching", EVALUATIONS * len(trials)) as screen:
        run_search(trials, ledger, show_progress, address=address, cpus=cpus)
        winner = pick_winner(trials, ledger)
        wanted = range(trials[0].seed, trials[0].seed + seeds)
        both = (trials[0].candidate, winner)
        more = [candidate.trial(seed) for seed in wanted[1:] for candidate in both]
        train_round(more, ledger, LocalExecutor(ledger, screen))
    return judge_search(trials, winner, wanted, ledger)


def show(result: SearchResult, out: Path) -> None:
    rows = [
        [
            f"{trial.name}{' (default)' if n == 0 else ''}",
            f"{trial.state}{', winner' if trial.name == result.winner else ''}",
            str(trial.step),
            *("" if score is None else f"{score:.3f}" for score in (trial.selection, trial.report)),
        ]
        for n, trial in enumerate(result.tried)
    ]
    print_table(
        f"{len(rows)} trials by {result.best_by}",
        ["trial", "state", "step", "selection", "report"],
        rows,
        "selection: the half of validation that the search uses; report: the other half",
    )
    winner = next(trial for trial in result.tried if trial.name == result.winner)
    settings = ", ".join(f"{key}={value}" for key, value in winner.settings.items())
    OUT.print(f"winner: {winner.name} ({settings})", soft_wrap=True)
    if (difference := result.difference) is not None:
        OUT.print(
            f"winner minus default on the report half: {difference.mean:+.3f} ± "
            f"{difference.stderr:.3f}, 95 % interval {difference.low:+.3f} to "
            f"{difference.high:+.3f}, {difference.seeds} seed(s)",
            soft_wrap=True,
        )
    print_warnings([result.warning] if result.warning else [])
    OUT.print(f"its run: {out / 'trials' / winner.id}", soft_wrap=True)
