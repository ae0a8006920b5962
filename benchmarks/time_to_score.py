"""Minutes of training until the validation score of three tasks reaches a level.

python -m benchmarks.time_to_score --data DIR
python -m benchmarks.time_to_score --data DIR --only mops-fast transformers

- `mops-fast`, `mops-good`: `mops train` with these recipes.
- `transformers`: for each task a sequence classifier trained by its `Trainer` at usual settings
  (rate 2e-5, linear decay, 32 rows, 3 epochs).
- `sentence-transformers`: one encoder, a loss for each task (contrastive for duplicates, cosine for
  a similarity, triplets for classes), the same settings; a logistic regression on its vectors
  gives the classes, of a pair from their difference and product.
- `setfit`: for each classification an encoder tuned on pairs of its rows and a logistic regression,
  at its default settings; a pair is read as one text. It cannot learn a similarity: that is the
  cosine of the untrained encoder, which costs nothing.

All start from the same encoder, learn from the same rows on all cores, and are scored on the same
validation rows: those by which mops chooses its best state. Evaluation is not counted, nor is the
fit of the regressions. Contenders of which the package is not installed are left out; results of
others are kept, so that they can be measured one by one.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import mops
from benchmarks.harness import arguments, write_result
from benchmarks.training_step import TASKS, data_name
from mops.data.batches import Texts
from mops.evaluate.evaluate import overall_of
from mops.evaluate.metrics import score
from mops.tasks import Task
from mops.training.machine import own_cores
from mops.training.prepare import prepare, selection_data, task_data

LEVELS = (0.70, 0.74, 0.755)  # normalised overall
RATE, ROWS, EPOCHS, LENGTH = 2e-5, 32, 3.0, 128
EVALUATIONS = 8  # of a training
QUICK_STEPS = 2
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """One task: its training rows, and the validation rows it is scored on."""

    task: Task
    texts: Sequence[Texts]
    targets: Values
    validation: Sequence[Texts]
    expected: Values

    def score(self, predictions: Values) -> float:
        return score(self.task, self.expected, predictions)[self.task.score_name]


@dataclass(frozen=True)
class Setting:
    data: str
    encoder: str  # folder
    rows: Mapping[str, Rows]
    steps: int | None  # of each training; None: all

    def overall(self, scores: Mapping[str, float]) -> float:
        tasks = {name: own.task for name, own in self.rows.items()}
        named = {name: {tasks[name].score_name: value} for name, value in scores.items()}
        return overall_of(tasks, named)["overall_normalised"]


@dataclass(frozen=True)
class Point:
    """The state of a contender after some minutes of training."""

    minutes: float
    scores: Mapping[str, float]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", nargs="*", choices=CONTENDERS, help="default: all")
    options = parser.parse_args()
    torch.set_num_threads(own_cores())
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "WANDB_MODE": "off"}
    warnings.simplefilter("ignore")  # of the other packages, about each other
    setting = read_setting(options)
    results = read_results(options.out / "time_to_score.json", data_name(options.data))
    for name in options.only or CONTENDERS:
        packages, train = CONTENDERS[name]
        if missing := [package for package in packages if find_spec(package) is None]:
            print(f"{name}: left out, {' and '.join(missing)} not installed")
            continue
        with tempfile.TemporaryDirectory(prefix="mops-") as scratch:
            points = list(train(setting, Path(scratch)))
        results[name] = describe(points, setting)
        print(f"{name}: {summary(results[name])}", flush=True)
        facts = {"data": data_name(options.data), "rows": count_rows(setting)}
        path = write_result("time_to_score", {**facts, "contenders": results}, options.out)
    print(path)


def read_setting(options: Any) -> Setting:
    recipe = mops.recipe(data=options.data, encoder=options.encoder, tasks=TASKS)
    ready = prepare(recipe, lambda _: None)
    selection = selection_data(ready)
    rows = {}
    for name, splits in ready.dataset.splits.items():
        train, chosen = splits["train"].good, selection[name]
        rows[name] = Rows(
            task=chosen.task,
            texts=[row.texts for row in train],
            targets=task_data(ready, name, tuple(train)).targets,
            validation=chosen.texts,
            expected=chosen.targets,
        )
    steps = QUICK_STEPS if options.quick else None
    return Setting(options.data, str(ready.source.folder), rows, steps)


def read_results(path: Path, data: str) -> dict[str, Any]:
    """Of the contenders that were measured on the same data before."""
    if not path.is_file():
        return {}
    known = json.loads(path.read_text("utf-8"))
    return dict(known["contenders"]) if known["data"] == data else {}


def describe(points: Sequence[Point], setting: Setting) -> dict[str, Any]:
    curve = [{**asdict(point), "overall": setting.overall(point.scores)} for point in points]
    reached = {
        f"{level:g}": next((p["minutes"] for p in curve if p["overall"] >= level), None)
        for level in LEVELS
    }
    return {"minutes_to": reached, "curve": curve}


def summary(result: Mapping[str, Any]) -> str:
    best, last = max(p["overall"] for p in result["curve"]), result["curve"][-1]
    reached = (
        f"{level} after {minutes:.1f} min" if minutes is not None else f"{level} never"
        for level, minutes in result["minutes_to"].items()
    )
    return f"{', '.join(reached)}; best {best:.3f}, {last['minutes']:.1f} min in all"


def count_rows(setting: Setting) -> dict[str, dict[str, int]]:
    return {
        name: {"train": len(own.texts), "validation": len(own.validation)}
        for name, own in setting.rows.items()
    }


# ------------------------------------------------------------------ mops


def train_mops(name: str) -> Callable[[Setting, Path], Iterator[Point]]:
    def train(setting: Setting, folder: Path) -> Iterator[Point]:
        changes: dict[str, Any] = {"training.threads": own_cores()}
        if setting.steps:
            changes |= {"training.max_steps": setting.steps, "training.eval_steps": setting.steps}
        recipe = mops.recipe(
            data=setting.data, encoder=setting.encoder, tasks=TASKS, recipe=name, set=changes
        )
        mops.train(recipe, folder / name)
        for line in (folder / name / "curve.jsonl").read_text("utf-8").splitlines():
            entry = json.loads(line)
            if "selection" in entry:
                tasks = setting.rows.items()
                scores = {n: entry["selection"][n][own.task.score_name] for n, own in tasks}
                yield Point(entry["seconds"] / 60, scores)

    return train


# ------------------------------------------------------------------ transformers


def stopwatch(evaluate: Callable[[], Any]) -> Any:
    """A callback of a `Trainer` that evaluates now and then; its `points` have training seconds."""
    from transformers import TrainerCallback

    class Stopwatch(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.points: list[tuple[float, Any]] = []
            self.seconds, self.began = 0.0, time.perf_counter()

        def on_step_end(self, args: Any, state: Any, *_: Any, model: Any, **__: Any) -> None:
            every = max(1, state.max_steps // EVALUATIONS)
            if state.global_step % every and state.global_step != state.max_steps:
                return
            self.seconds += time.perf_counter() - self.began
            model.eval()
            with torch.inference_mode():
                self.points.append((self.seconds, evaluate()))
            model.train()
            self.began = time.perf_counter()

    return Stopwatch()


def training_settings(setting: Setting, folder: Path) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "learning_rate": RATE,
        "per_device_train_batch_size": ROWS,
        "num_train_epochs": EPOCHS,
        "max_steps": setting.steps or -1,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 1,
    }


def train_transformers(setting: Setting, folder: Path) -> Iterator[Point]:
    """The models are trained one after the other; a point is the same part of each training."""
    parts = [list(train_classifier(setting, name, folder)) for name in setting.rows]
    for points in zip(*parts, strict=True):
        scores = dict(zip(setting.rows, (value for _, value in points), strict=True))
        yield Point(sum(seconds for seconds, _ in points) / 60, scores)


def train_classifier(setting: Setting, name: str, folder: Path) -> Iterator[tuple[float, float]]:
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
    )

    rows, tokenizer = setting.rows[name], AutoTokenizer.from_pretrained(setting.encoder)
    model = AutoModelForSequenceClassification.from_pretrained(
        setting.encoder, num_labels=rows.task.outputs
    )
    collate = DataCollatorWithPadding(tokenizer)

    def encode(texts: Texts) -> dict[str, Any]:
        return dict(tokenizer(*texts, truncation=True, max_length=LENGTH))

    def evaluate() -> float:
        outputs, order = [], sorted(rows.validation, key=lambda texts: sum(map(len, texts)))
        places = {texts: number for number, texts in enumerate(order)}
        for start in range(0, len(order), ROWS):
            batch = collate([encode(texts) for texts in order[start : start + ROWS]])
            outputs.append(model(**batch).logits)
        logits = torch.cat(outputs)[[places[texts] for texts in rows.validation]].numpy()
        is_class = logits.shape[1] > 1
        return rows.score((logits.argmax(1) if is_class else logits[:, 0]).astype(float))

    as_label = int if rows.task.outputs > 1 else float
    examples = [
        {**encode(texts), "labels": as_label(target)}
        for texts, target in zip(rows.texts, rows.targets, strict=True)
    ]
    watch = stopwatch(evaluate)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(**training_settings(setting, folder / name)),
        train_dataset=examples,
        data_collator=collate,
        callbacks=[watch],
    )
    trainer.train()
    yield from watch.points


# ------------------------------------------------------------------ sentence-transformers, SetFit


def train_sentence_transformers(setting: Setting, folder: Path) -> Iterator[Point]:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from sentence_transformers.sentence_transformer.losses import (
        BatchAllTripletLoss,
        CosineSimilarityLoss,
        OnlineContrastiveLoss,
    )

    model = SentenceTransformer(setting.encoder, device="cpu")
    model.max_seq_length = LENGTH
    sets, losses = {}, {}
    for name, rows in setting.rows.items():
        columns = {f"text{n}": list(own) for n, own in enumerate(zip(*rows.texts, strict=True))}
        if rows.task.outputs == 1:
            labels, losses[name] = unit_range(rows.targets).tolist(), CosineSimilarityLoss(model)
        else:
            loss = OnlineContrastiveLoss if rows.task.is_pair else BatchAllTripletLoss
            labels, losses[name] = rows.targets.astype(int).tolist(), loss(model)
        sets[name] = Dataset.from_dict({**columns, "label": labels})
    watch = stopwatch(lambda: {n: score_vectors(model, rows) for n, rows in setting.rows.items()})
    trainer = SentenceTransformerTrainer(
        model=model,
        args=Arguments(**training_settings(setting, folder)),
        train_dataset=sets,
        loss=losses,
        callbacks=[watch],
    )
    trainer.train()
    for seconds, scores in watch.points:
        yield Point(seconds / 60, scores)


def train_setfit(setting: Setting, folder: Path) -> Iterator[Point]:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from setfit import SetFitModel, Trainer, TrainingArguments

    scores, seconds = {}, 0.0
    for name, rows in setting.rows.items():
        if rows.task.outputs == 1:
            scores[name] = score_vectors(SentenceTransformer(setting.encoder, device="cpu"), rows)
            continue
        model = SetFitModel.from_pretrained(setting.encoder)
        columns = {"text": list(map(" ".join, rows.texts)), "label": rows.targets.astype(int)}
        arguments = TrainingArguments(
            output_dir=str(folder / name),
            num_epochs=1,
            num_iterations=1,  # a pair of equal and one of different classes for each row
            max_steps=setting.steps or -1,
            save_strategy="no",
            report_to="none",
            show_progress_bar=False,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=Dataset.from_dict(columns))
        started = time.perf_counter()
        trainer.train()
        seconds += time.perf_counter() - started
        answers = model.predict(list(map(" ".join, rows.validation)), as_numpy=True)
        scores[name] = rows.score(answers.astype(float))
    yield Point(seconds / 60, scores)


def score_vectors(model: Any, rows: Rows) -> float:
    """A similarity is a cosine; classes come from a logistic regression on the training rows."""
    from sklearn.linear_model import LogisticRegression

    if rows.task.outputs == 1:
        one, two = embed(model, rows.validation).transpose(1, 0, 2)
        return rows.score((one * two).sum(1).astype(float))
    known, asked = features(model, rows.texts), features(model, rows.validation)
    regression = LogisticRegression(max_iter=1000).fit(known, rows.targets)
    return rows.score(regression.predict(asked).astype(float))


def features(model: Any, texts: Sequence[Texts]) -> NDArray[np.float32]:
    vectors = embed(model, texts)
    if vectors.shape[1] == 1:
        return vectors[:, 0]
    one, two = vectors.transpose(1, 0, 2)
    return np.concatenate([np.abs(one - two), one * two], axis=1)


def embed(model: Any, texts: Sequence[Texts]) -> NDArray[np.float32]:
    """Rows, texts of a row, width; of length 1."""
    flat = [text for row in texts for text in row]
    vectors = model.encode(flat, normalize_embeddings=True, show_progress_bar=False)
    return np.asarray(vectors).reshape(len(texts), -1, vectors.shape[-1])


def unit_range(targets: Values) -> Values:
    low, high = targets.min(), targets.max()
    return (targets - low) / (high - low)


TrainContender = Callable[[Setting, Path], Iterator[Point]]
CONTENDERS: dict[str, tuple[tuple[str, ...], TrainContender]] = {  # name -> packages, training
    "mops-fast": ((), train_mops("fast")),
    "mops-good": ((), train_mops("good")),
    "transformers": (("accelerate",), train_transformers),
    "sentence-transformers": (
        ("sentence_transformers", "datasets", "accelerate"), train_sentence_transformers,
    ),
    "setfit": (("setfit",), train_setfit),
}  # fmt: skip


if __name__ == "__main__":
    main()
