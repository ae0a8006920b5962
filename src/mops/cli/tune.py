"""`mops tune`"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mops.cli.main import echo_json
from mops.cli.options import JSON, read_recipe, recipe_options
from mops.cli.screen import ProgressBar

if TYPE_CHECKING:
    from mops.surveys.design import Survey
    from mops.surveys.ledger import Trial
    from mops.surveys.local import Job
    from mops.surveys.tune import SearchResult


@click.command()
@recipe_options
@click.option("--trials", type=click.IntRange(min=2), default=12, show_default=True,
              help="Settings to try, the recipe's own among them.")  # fmt: skip
@click.option("--space", metavar="FILE", type=click.Path(path_type=Path),
              help="What varies, in YAML; default: plan, rates, loss weights, budget.")  # fmt: skip
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True,
              help="Train winner and default with so many seeds at the end.")  # fmt: skip
@click.option("--cpus", type=click.FloatRange(min=0, min_open=True), default=1.0,
              show_default=True, help="Cores of each trial.")  # fmt: skip
@click.option("--address", metavar="HOST:PORT", help="Of a Ray cluster; default: this machine.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("surveys/tune"),
              show_default=True, help="Folder of all trials.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print what would be tried and stop.")
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

    The recipe as it is comes first and is never stopped. The others are drawn from the space; those
    that fall behind on the selection half are stopped early (ASHA). The winner is then compared
    with the default on the report half, which has picked nothing. All trials are runs in one
    survey folder; the same command goes on where it was. A space is one line for each key:

    \b
      plan: {choice: [...]}
      training.learning_rate: {log_uniform: [1e-5, 1e-4]}
      training.dropout: {uniform: [0, 0.3]}

    \b
    Example:
      mops tune --data sample --trials 12 --set training.max_steps=120
    """
    from mops.surveys.search_space import (
        budget_in_steps,
        default_space,
        plan_search,
        read_space,
    )

    recipe = budget_in_steps(read_recipe(**options))
    drawn = read_space(space) if space else default_space(recipe)
    survey = plan_search(recipe, drawn, trials)
    if dry_run:
        click.echo(survey.to_yaml(), nl=False)
        return
    verdict = search(survey, out, seeds, cpus, address)
    if as_json:
        echo_json(verdict.to_data())
    else:
        show(verdict, out)


def search(survey: Survey, out: Path, seeds: int, cpus: float, address: str | None) -> SearchResult:
    from mops.surveys.run import begin
    from mops.surveys.tune import judge_search, pick_winner, run_search

    ledger, trials = begin(survey, out), survey.trials()
    ledger.register(trials)
    with SearchScreen(trials) as screen:
        run_search(trials, ledger, screen.told, address=address, cpus=cpus)
        winner = pick_winner(trials, ledger)
        first = trials[0].seed
        wanted = range(first, first + seeds)
        more = [of.trial(s) for s in wanted[1:] for of in (trials[0].candidate, winner)]
        train_more(more, out, screen)
    return judge_search(trials, winner, wanted, ledger)


def train_more(trials: Sequence[Trial], out: Path, screen: SearchScreen) -> None:
    """Winner and default with further seeds."""
    from mops.surveys.ledger import Ledger
    from mops.surveys.local import LocalExecutor
    from mops.surveys.run import train_round

    ledger = Ledger(out)
    train_round(trials, ledger, LocalExecutor(ledger, screen))


class SearchScreen(ProgressBar):
    """Evaluations of all trials so far, and the best score on the selection half."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        from mops.surveys.search_space import EVALUATIONS

        super().__init__("searching", EVALUATIONS * len(trials))
        self.names = {trial.id: trial.candidate.name for trial in trials}
        self.done: dict[str, int] = {}
        self.best = -1.0

    def told(self, trial_id: str, evaluations: int, score: float) -> None:
        self.done[trial_id], self.best = evaluations, max(self.best, score)
        facts = f"best so far {self.best:.3f}, now {self.names[trial_id]}"
        self.update(completed=sum(self.done.values()), facts=facts)

    def started(self, job: Job) -> None:
        self.update(facts=f"again with another seed: {job.name}")

    def moved(self, job: Job, fraction: float, activity: str) -> None:
        self.update(facts=f"again with another seed: {job.name}: {activity}")

    def ended(self, job: Job) -> None:
        pass

    def phase(self, name: str) -> None:
        self.update(facts=name)

    def note(self, text: str) -> None:
        from mops.cli.screen import ERR

        ERR.print(text, soft_wrap=True)


def show(verdict: SearchResult, out: Path) -> None:
    from mops.cli.screen import OUT, print_table, print_warnings

    rows = [
        [
            f"{tried.name}{' (default)' if n == 0 else ''}",
            f"{tried.state}{', winner' if tried.name == verdict.winner else ''}",
            str(tried.step),
            number(tried.selection),
            number(tried.report),
        ]
        for n, tried in enumerate(verdict.tried)
    ]
    print_table(
        f"{len(rows)} trials by {verdict.best_by}",
        ["trial", "state", "step", "selection", "report"],
        rows,
        "selection: the half of validation that picks, and stops; report: the other half",
    )
    found = next(tried for tried in verdict.tried if tried.name == verdict.winner)
    settings = ", ".join(f"{key}={value}" for key, value in found.settings.items())
    OUT.print(f"winner: {found.name} ({settings})", soft_wrap=True)
    if verdict.difference is not None:
        of = verdict.difference
        OUT.print(
            f"winner minus default on the report half: {of.mean:+.3f} ± {of.stderr:.3f}, "
            f"95 % from {of.low:+.3f} to {of.high:+.3f}, {of.seeds} seed(s)",
            soft_wrap=True,
        )
    print_warnings([verdict.warning] if verdict.warning else [])
    OUT.print(f"its run: {out / 'trials' / found.id}", soft_wrap=True)


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
