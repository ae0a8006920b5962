"""`mops`: the list of commands, and errors in one line."""

import importlib
import io
import os
import re
import sys
import traceback
import warnings
from contextlib import suppress

import click

from mops import __version__
from mops.errors import MopsError, UsageError, nearest
from mops.tables import visible

COMMANDS = {  # name -> what it does; each lives in the module of its name
    "quickstart": "Survey six sharing plans on the embedded data.",
    "init": "Write a starter recipe for a folder of data files.",
    "check": "Validate a recipe and its data without training.",
    "plans": "List the sharing plans with their sizes, or draw one.",
    "train": "Train one plan and save the model.",
    "add-task": "Add a task to a trained model; the others answer as before.",
    "remove-task": "Remove a task from a trained model.",
    "merge": "Make one model of two that share an encoder.",
    "pretrain": "Continue masked-language-model pretraining on the tasks' texts.",
    "eval": "Score a trained model on its data, or on other data.",
    "predict": "Predict every row of a file with a trained model.",
    "verify": "Check the files of a trained model against its manifest.",
    "serve": "Answer requests over HTTP with a trained model.",
    "export": "Write a trained model for other tools.",
    "survey": "Train many plans under one budget and compare them.",
    "tune": "Search plan, learning rates, loss weights and budget together.",
    "report": "Write the report of a survey or run: page, tables, figures.",
    "recommend": "Recommend a plan from a finished survey, with reasons.",
    "probe": "Measure how answers change with names, gender and nationality.",
    "conflicts": "Measure how tasks' gradients conflict and outputs correlate.",
    "cache": "Show or clear the cache of frozen activations and tokens.",
}
# The last is what extension modules leave behind when they could not allocate.
NO_MEMORY = re.compile(
    r"memory|failed to map|new thread|Resource temporarily|without exception set", re.I
)
SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True}


class Commands(click.Group):
    """Imports a command only when it is called, so `mops --help` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        if cmd_name not in COMMANDS:
            known = ", ".join(COMMANDS)
            ctx.fail(f"no command {cmd_name!r}; there are {known}.{nearest(cmd_name, COMMANDS)}")
        module = importlib.import_module(f"mops.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=Commands, context_settings=SETTINGS)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, message="mops %(version)s", help="Show the version.")
def cli(debug: bool) -> None:
    """Several text tasks, one encoder, one small machine: which weights should the tasks share?

    \b
    Start:  mops quickstart
    Then:   mops init my-data/ && mops check --config my-data/mops.yaml
            mops survey --config my-data/mops.yaml --budget 1h --out surveys/first
            mops report surveys/first --open
            mops recommend surveys/first
            mops train --config my-data/mops.yaml --out runs/first
            mops predict runs/first/model my-data/new.csv
    """


def main() -> None:
    """Run a command; an error that the user can fix is one line on stderr."""
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    is_debug = len(arguments) < len(sys.argv) - 1
    warnings.formatwarning = lambda message, *_: f"mops: warning: {visible(str(message))}\n"
    try:
        open_streams()
        refuse_other_encodings(arguments)
        cli.main(arguments or ["--help"], prog_name="mops", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except (click.Abort, KeyboardInterrupt) as stop:
        say(str(stop.__cause__ or stop) or "stopped")  # click wraps it
        sys.exit(130)
    except BrokenPipeError:  # `mops plans | head`
        drop_output()
        sys.exit(0)
    except Exception as error:
        if is_debug:
            traceback.print_exception(error)
        say(f"error: {describe(error)}")
        if isinstance(error, OSError):
            drop_output()
        sys.exit(getattr(error, "exit_code", 1))


def open_streams() -> None:
    """Standard streams that are closed fail when they are used, and no file gets their number.

    What an encoding cannot express is written as its code point.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            mode = os.O_WRONLY if name == "stderr" else os.O_RDONLY
            os.open(os.devnull, mode)  # the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def refuse_other_encodings(words: list[str]) -> None:
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError as cause:
            raise UsageError(
                f"{word!r} is not UTF-8 text, so it could not be recorded; rename the file"
            ) from cause


def describe(error: Exception) -> str:
    """One line; only what nobody expects names its type."""
    if isinstance(error, click.ClickException):
        return error.format_message()
    text = str(error)
    if isinstance(error, MopsError):
        return text
    if isinstance(error, MemoryError) or NO_MEMORY.search(text):
        return (
            f"out of memory or of threads: {text or 'no more is free'}; free some or raise limits"
        )
    if isinstance(error, OSError):
        place = error.filename or "standard input or output"
        return f"{place}: {error.strerror or text}; check the disk, its permissions and limits"
    if isinstance(error, UnicodeEncodeError):
        part = error.object[error.start : error.end]
        return f"{part!r} cannot be written as UTF-8; rename the file or folder that has it"
    return f"unexpected {type(error).__name__}: {text}; --debug shows the traceback"


def say(text: str) -> None:
    with suppress(OSError):  # stderr may be full too
        click.echo(f"mops: {visible(' '.join(text.split()))}", err=True)


def drop_output() -> None:
    """What is left in the buffer would fail again at the end of the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
