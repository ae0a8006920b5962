"""Transfer between tasks: how the score of a task changes when another one is trained beside it."""

from functools import partial
from pathlib import Path

from mops.evaluate.joint import Difference, estimate_joint
from mops.evaluate.statistics import row_covariance, row_noise
from mops.surveys.design import Survey
from mops.surveys.ledger import Ledger
from mops.surveys.results.judge import FinishedTrial, read_trial, split_by_rows
from mops.surveys.results.tables import INTERVAL, difference_cell
from mops.tables import Cell, Table

Transfer = dict[str, dict[str, Difference]]  # task -> the other task -> with it, minus alone
ABOUT = (
    "Row: the task that is scored. Column: the task that was trained beside it, on one encoder. "
    "Score beside it minus score alone; simultaneous 95 % intervals over the columns (Dunnett)."
)


def measure_transfer(survey: Survey, folder: Path) -> Transfer:
    """From the runs of one task and of two; empty for a survey without them."""
    trials = Ledger(folder).with_ids(survey.trials())
    finished, _ = split_by_rows([read_trial(trial, folder, survey.on) for trial in trials])
    transfer: Transfer = {}
    for task in survey.recipe["tasks"]:
        beside: dict[str, list[FinishedTrial]] = {}
        for one in finished:
            trained = one.trial.recipe.training.train_tasks
            if task in trained and len(trained) <= 2:
                other = next((name for name in trained if name != task), task)
                beside.setdefault(other, []).append(one)
        if task in beside and len(beside) > 1:
            transfer[task] = compare_task(task, beside)
    return transfer


def compare_task(name: str, beside: dict[str, list[FinishedTrial]]) -> dict[str, Difference]:
    """The score of a task beside each other one, minus its score alone (beside itself)."""
    rows = beside[name][0].judged[name]
    values = {o: {t.trial.seed: t.result.scores[name] for t in own} for o, own in beside.items()}
    answers = {o: {t.trial.seed: t.judged[name].values for t in own} for o, own in beside.items()}
    noise = row_noise(partial(row_covariance, rows.task, rows.targets), answers)
    return estimate_joint(values, *noise.scaled(1.0)).against(name)


def transfer_table(survey: Survey, folder: Path) -> Table:
    transfer = measure_transfer(survey, folder)
    rows = tuple(
        (Cell(task), *(difference_cell(own.get(other), INTERVAL) for other in transfer))
        for task, own in transfer.items()
    )
    return Table("transfer", "Transfer", ("task", *transfer), rows, ABOUT)
