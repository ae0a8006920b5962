"""Servers on loopback, and a survey that seems to be running."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import uvicorn

from mops.surveys.design import Survey, read_survey
from mops.surveys.ledger import Ledger, Trial
from mops.surveys.pack import read_pack

PACK = Path(__file__).parent.parent / "fixtures" / "survey.mops"


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of the app while it runs in a thread."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, ws="none", log_level="warning"))
    thread = Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        thread.join(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


class RunningSurvey:
    """A finished survey whose trainings can be taken away and brought back."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.aside = folder / "survey", folder / "aside"
        read_pack(PACK, self.folder)
        self.aside.mkdir()
        self.ledger = Ledger(self.folder)
        self.survey: Survey = read_survey(self.folder / "survey.yaml")
        self.trials: list[Trial] = self.ledger.with_ids(self.survey.trials())

    def take_away(self, *trials: Trial) -> None:
        for trial in trials:
            shutil.move(self.ledger.run_folder(trial.id), self.aside / trial.id)

    def bring_back(self, trial: Trial) -> None:
        """As a training ends: the record comes last."""
        run = self.ledger.run_folder(trial.id)
        shutil.copytree(self.aside / trial.id, run, dirs_exist_ok=True, ignore=only_files)
        (self.aside / trial.id / "record.json").replace(run / "record.json")

    def lines(self, trial: Trial) -> list[str]:
        return (self.aside / trial.id / "curve.jsonl").read_text("utf-8").splitlines(keepends=True)

    def write_curve(self, trial: Trial, count: int) -> None:
        """The first lines of its curve, the next of them torn."""
        run, lines = self.ledger.run_folder(trial.id), self.lines(trial)
        run.mkdir(exist_ok=True)
        torn = lines[count][:20] if count < len(lines) else ""
        (run / "curve.jsonl").write_text("".join(lines[:count]) + torn, "utf-8")


def only_files(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "record.json"]
