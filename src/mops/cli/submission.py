"""Submission files of the CS224N default project: dev and test of three tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mops.cli.eval import entries_of
from mops.cli.screen import OUT, ProgressBar
from mops.errors import UsageError
from mops.files import write_text

if TYPE_CHECKING:
    from mops.predict.predictor import Predictor

# task -> the course's word for it, and the header of its file, spelt as the course spells it
FILES = {
    "sentiment": ("sst", "Predicted_Sentiment"),
    "paraphrase": ("para", "Predicted_Is_Paraphrase"),
    "similarity": ("sts", "Predicted_Similiary"),
}
SPLITS = {"validation": "dev", "test": "test"}


def write_submission(predictor: Predictor, folder: Path, data: str | None) -> None:
    """Six files named as the course's checker expects them."""
    from mops.data.examples import read_rows

    named = [name for name in FILES if name in predictor.tasks]
    if not named:
        raise UsageError(
            f"--cs224n is for the tasks {', '.join(FILES)}; the model has none of them"
        )
    entries = entries_of(predictor.bundle, data, named)
    with ProgressBar("predicting", total=len(named) * len(SPLITS)) as bar:
        for name in named:
            word, header = FILES[name]
            task = predictor.bundle.layout.tasks[name]
            for split, short in SPLITS.items():
                source = entries[name].files().get(split)
                if source is not None:
                    read = read_rows(source, task, needs_label=False, on_bad_row="skip")
                    answers = predictor.predict_tasks({name: [row.texts for row in read.rows]})[
                        name
                    ]
                    lines = [f"id \t {header} \n"]
                    pairs = zip(read.rows, answers.as_strings(), strict=True)
                    lines += [f"{row.id} , {answer} \n" for row, answer in pairs]
                    path = folder / f"{word}-{short}-output.csv"
                    write_text(path, "".join(lines))
                    OUT.print(str(path), soft_wrap=True)
                bar.update(advance=1)
