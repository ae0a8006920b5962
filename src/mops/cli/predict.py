"""`mops predict`"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

import mops
from mops.api.progress import ERR, ProgressBar, print_warnings
from mops.cli.eval import find_entries
from mops.cli.options import ADDRESS, BACKEND, COUNT, DATA, DEVICE, JSON, PATH, find_model
from mops.cli.screen import echo
from mops.data.compose import choose_tasks
from mops.data.dataset import SHOWN_ROWS, first_problems, read_rows
from mops.data.tables import open_table
from mops.errors import UsageError
from mops.files import atomic_write, write_text
from mops.tables import visible

if TYPE_CHECKING:
    from mops.serve.bulk import Answers, Input

# task -> the word of the CS224N course for it and the header of its file, spelt as in the course
COURSE_FILES = {
    "sentiment": ("sst", "Predicted_Sentiment"),
    "paraphrase": ("para", "Predicted_Is_Paraphrase"),
    "similarity": ("sts", "Predicted_Similiary"),
}
COURSE_SPLITS = {"validation": "dev", "test": "test"}


@click.command()
@click.argument("model", type=PATH)
@click.argument("sources", metavar="[INPUT]...", nargs=-1)
@click.option("--task", metavar="NAME", help="Only this task; default: all that fit the columns.")
@click.option("--text", metavar="COLUMN", multiple=True,
              help="Text column(s) of the input; default: the task's. Repeatable.")  # fmt: skip
@click.option("--out", type=PATH,
              help="Output file, or folder of several outputs; default: stdout.")  # fmt: skip
@click.option("--cs224n", type=PATH, metavar="DIR",
              help="Write the CS224N submission files for dev and test into DIR.")  # fmt: skip
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local",
              help="This process, or Ray Data.")  # fmt: skip
@click.option("--jobs", type=COUNT,
              help="With --engine ray: copies of the model; default: one a core.")  # fmt: skip
@click.option("--raw", is_flag=True,
              help="Leave cells as they are that a spreadsheet would compute.")  # fmt: skip
@ADDRESS
@DATA
@DEVICE
@BACKEND
@JSON
def command(
    model: Path,
    sources: tuple[str, ...],
    out: Path | None,
    cs224n: Path | None,
    data: str | None,
    device: str | None,
    backend: str | None,
    as_json: bool,
    task: str | None,
    text: tuple[str, ...],
    engine: str,
    jobs: int | None,
    address: str | None,
    raw: bool,
) -> None:
    """Predict every row of files with a trained model, in the order of the rows.

    INPUT is a csv, tsv, jsonl or parquet file, or - for standard input. The output is csv (id and
    one column per task), or with --json one object per line with the probability of each class.
    In csv, `'` stands before an id or label that begins like a formula (= + - @) and is no number.
    Several inputs have an output each, of the same name, in the folder --out. With --engine ray the
    work is spread over the cores of a machine or a cluster; the output is the same.

    \b
    Example:
      mops predict runs/first/model reviews.csv --task sentiment --out predictions.csv
      printf 'sentence\\nA lovely film.\\n' | mops predict runs/first/model -
      mops predict runs/first/model parts/*.parquet --out answers/ --engine ray
    """
    from mops.predict.frames import fitting_tasks
    from mops.serve.bulk import CSV, JSON_LINES, RAW_CSV, Input, answer_here

    if (jobs or address) and engine != "ray":
        raise UsageError("--jobs and --address belong to --engine ray")
    if cs224n and engine == "ray":
        raise UsageError("--cs224n writes its files on this machine; leave --engine ray out")
    model, device = find_model(model, device, backend)
    predictor = prepare_predictor(model, device)
    if cs224n is not None:
        return write_submission(predictor, cs224n, data)
    if not sources:
        raise UsageError("no input; give a file, or - for standard input")
    form = JSON_LINES if as_json else RAW_CSV if raw else CSV
    tables = [open_table(source, text) for source in sources]
    places = output_places(sources, out, form.ending)
    tasks = choose_tasks(predictor.bundle.layout.tasks, [task] if task else None)
    inputs = [
        Input(table, tuple(fitting_tasks(tasks.values(), table, text)), form) for table in tables
    ]
    if engine == "ray":
        load = partial(prepare_predictor, model.absolute(), device)
        return predict_on_ray(load, inputs, places, jobs, address)
    return write_answers(answer_here(predictor, inputs), inputs, places)


def prepare_predictor(model: Path, device: str) -> mops.Predictor:
    from mops.training.machine import keep_freed_memory

    keep_freed_memory()
    return mops.load(model, device)


def predict_on_ray(
    load: Callable[[], mops.Predictor],
    inputs: Sequence[Input],
    places: Sequence[Path | None],
    jobs: int | None,
    address: str | None,
) -> None:
    from mops.serve.bulk import answer_on_ray
    from mops.surveys.executors import ray_session

    with ray_session(address) as ray:
        cores = int(ray.cluster_resources()["CPU"])
        if (jobs := jobs or cores) > cores:  # Ray would wait forever
            raise UsageError(f"--jobs {jobs}: each copy of the model takes a core of {cores}")
        write_answers(answer_on_ray(ray, load, inputs, jobs), inputs, places)


def output_places(sources: Sequence[str], out: Path | None, ending: str) -> list[Path | None]:
    """The output of each input; None: stdout."""
    if out is None:
        if len(sources) > 1:
            raise UsageError(f"{len(sources)} inputs need --out DIR, the folder of their outputs")
        return [None]
    is_file = len(sources) == 1 and not out.is_dir()
    places = [out] if is_file else [out / f"{Path(source).stem}{ending}" for source in sources]
    for place, source in zip(places, sources, strict=True):
        if places.count(place) > 1 or any(is_same_file(place, Path(other)) for other in sources):
            raise UsageError(
                f"the output of {source} would be {place}, which is another output or an input; "
                "name another --out, or predict files of the same name one by one"
            )
    return [*places]


def is_same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, also by a second name of it."""
    return one.is_file() and other.is_file() and one.samefile(other)


class Output(Protocol):
    def write(self, text: str, /) -> object: ...


class ShownText:
    """Standard output where a person looks at it."""

    def write(self, text: str) -> None:
        sys.stdout.write(visible(text))


@contextmanager
def opened(place: Path | None) -> Iterator[Output]:
    """A file that appears when it is complete; None: stdout."""
    if place is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # as files are, whatever the terminal reads
        yield ShownText() if sys.stdout.isatty() else sys.stdout
        return
    with atomic_write(place) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        yield file


def write_answers(
    answers: Iterator[tuple[int, Answers]],
    inputs: Sequence[Input],
    places: Sequence[Path | None],
) -> None:
    """Write each file in its turn, then warn of the rows with a problem."""
    counts = [each.table.count() for each in inputs]
    total = None if None in counts else sum(count or 0 for count in counts)
    problems, shown = 0, list[str]()
    with ProgressBar("predicting", total) as bar:
        for number, blocks in groupby(answers, key=itemgetter(0)):
            with opened(places[number]) as file:
                file.write(inputs[number].header)
                for _, block in blocks:
                    file.write(block.text)
                    problems += len(block.problems)
                    shown = [*shown, *block.problems][: SHOWN_ROWS + 1]
                    bar.show(advance=block.rows)
    if problems:
        warning = f"{problems} rows have a problem and were predicted anyway"
        print_warnings([f"{warning}: {first_problems(shown)}"])


def write_submission(predictor: mops.Predictor, folder: Path, data: str | None) -> None:
    """The submission files of the CS224N default project: dev and test of three tasks."""
    names = [name for name in COURSE_FILES if name in predictor.tasks]
    if not names:
        raise UsageError(
            f"--cs224n needs a model with one of the tasks {', '.join(COURSE_FILES)}; "
            f"this model has {', '.join(predictor.tasks)}"
        )
    for name, entry in find_entries(predictor.bundle, data, names).items():
        task, (word, header) = predictor.bundle.layout.tasks[name], COURSE_FILES[name]
        for split, source in entry.files().items():
            if split not in COURSE_SPLITS:
                continue
            rows = read_rows(source, task, needs_label=False, on_bad_row="skip").rows
            with ERR.status(f"predicting {source}"):
                answers = predictor.predict_tasks({name: [row.texts for row in rows]})[name]
            pairs = zip(rows, answers.as_strings(), strict=True)
            lines = [f"id \t {header} \n", *(f"{row.id} , {label} \n" for row, label in pairs)]
            path = folder / f"{word}-{COURSE_SPLITS[split]}-output.csv"
            write_text(path, "".join(lines))
            echo(path)
