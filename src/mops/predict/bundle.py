"""The bundle: a trained model as one complete folder; none of its files can run code.

The predictor answers with it: texts in, predictions out, in the order of the texts.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from mops.config.training import TaskEntry
from mops.data.batches import TokenTable, full_lengths, tokenise
from mops.data.frames import Frame
from mops.data.splits import Row
from mops.data.tokenizer import load_tokenizer
from mops.errors import EncoderError, OutputError, UsageError, nearest
from mops.files import atomic_write, file_digest, to_path, write_text
from mops.model.network import Network, shape_network
from mops.model.pretrained import check_tensors, open_weights, write_tensors
from mops.model.sources import join_digests
from mops.plans.catalog import read_plan
from mops.plans.layout import Layout, lay_out
from mops.plans.shapes import EncoderShape, Reading, check_length
from mops.predict.card import format_card
from mops.predict.facts import check_facts
from mops.predict.frames import read_texts, to_table
from mops.predict.inference import (
    WINDOW,
    Outputs,
    Predictions,
    compute_outputs,
    decide,
)
from mops.predict.manifest import check_manifest, write_described
from mops.yaml_io import format_yaml, read_json, read_yaml, to_value

FORMAT = 1
MOST_TASKS, MOST_STEPS = 1000, 50_000  # of a bundle; layers on the routes of all tasks
GRAPH = "model.onnx"  # in the folder of an exported model
Device = str | torch.device
Compute = Callable[[Mapping[str, TokenTable]], Outputs]
Texts = Sequence[str | tuple[str, ...]]  # of one task: a text or a pair for each row
READING_KEYS = tuple(own.name for own in fields(Reading))


@dataclass(frozen=True)
class Bundle:
    """A model that is ready to predict, and what is known about it."""

    folder: Path
    network: Network
    tokenizer: Tokenizer
    entries: Mapping[str, TaskEntry]  # with the files it was trained and evaluated on
    config: Mapping[str, Any]
    tokenising: Lock = field(default_factory=Lock, repr=False, compare=False)

    @property
    def layout(self) -> Layout:
        return self.network.layout

    def prepare(self, device: Device) -> Compute:
        """The network on a device, as a function from token tables to outputs."""
        return partial(compute_outputs, self.network.to(device), device=device)

    @property
    def source(self) -> "BundleSource":
        """What a network that grows from this one begins with."""
        known = (self.config.get(f"encoder_{key}", "") for key in ("name", "sha256", "licence"))
        name, digest, licence = known
        shape = self.layout.encoder
        files = join_digests(self.folder, ("tokenizer.json", "plan.yaml"), self.digest, repr(shape))
        return BundleSource(name, self.folder, shape, self.tokenizer, digest, files, licence)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the weights."""
        return file_digest(self.folder / "model.safetensors")

    def copy_owners(self, network: Network, owners: Mapping[str, str]) -> None:
        """Fill owners of another network (new name -> name here)."""
        for owner, ours in owners.items():
            network.bank[owner].load_state_dict(self.network.bank[ours].state_dict())


@dataclass(frozen=True)
class BundleSource:
    """A bundle in the place of a pretrained encoder."""

    name: str
    folder: Path
    shape: EncoderShape
    tokenizer: Tokenizer
    digest: str
    files_digest: str
    licence: str


class Loaded(Protocol):
    """What a predictor needs of a model, whatever computes its outputs."""

    @property
    def folder(self) -> Path: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def entries(self) -> Mapping[str, TaskEntry]: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def tokenising(self) -> Lock:
        """Held while texts are read: long ones change the tokenizer's settings for a moment."""

    def prepare(self, device: Device) -> Compute: ...


def save_bundle(
    folder: Path,
    network: Network,
    tokenizer: Tokenizer,
    entries: Mapping[str, TaskEntry],
    facts: Mapping[str, Any],
) -> None:
    """Write a bundle; the folder appears complete or not at all."""
    tasks = {
        name: entry.model_dump(mode="json", exclude_none=True) for name, entry in entries.items()
    }
    with atomic_write(folder) as draft:
        draft.mkdir()
        write_tensors(draft / "model.safetensors", network.weights())
        write_text(draft / "plan.yaml", format_yaml(network.layout.plan.to_data()))
        write_text(draft / "tasks.yaml", format_yaml(tasks))
        tokenizer.no_truncation()
        write_text(draft / "tokenizer.json", tokenizer.to_str())
        write_facts(draft, network.layout, facts)


def write_facts(folder: Path, layout: Layout, facts: Mapping[str, Any]) -> None:
    """Write config.json, the card and the manifest; the other files stay as they are."""
    shapes = {"encoder": asdict(layout.encoder), **asdict(layout.reading)}
    config = {"mops_bundle": FORMAT, **shapes, **facts}
    text = json.dumps(config, indent=2, allow_nan=False) + "\n"
    write_described(folder, {"README.md": format_card(layout, config), "config.json": text})


def load_bundle(folder: str | Path) -> Bundle:
    """Read a bundle, strictly: every tensor must be there and no other.

    The weights are mapped, not copied: processes that load the same folder share their memory.
    """
    folder = Path(folder)
    if (folder / GRAPH).is_file():
        raise EncoderError(
            f"{folder} is an exported graph, not the weights that this needs; name the model it "
            "was made from"
        )
    layout, entries, config = read_facts(folder)
    weights = open_weights(path := folder / "model.safetensors")
    check_owners(path, weights, layout)
    network = shape_network(layout)  # the weights stay in the file, mapped
    check_tensors(path, weights, network.bank.state_dict())
    network.bank.load_state_dict(weights, assign=True)
    return Bundle(folder, network.eval(), load_tokenizer(folder, layout.encoder), entries, config)


def check_owners(path: Path, weights: Iterable[str], layout: Layout) -> None:
    """Refuse a plan with other owners than the weights, before a module is built for each."""
    found = {name.partition(".")[0] for name in weights}  # names of owners have no dots
    if missing := [owner for owner, size in layout.sizes.items() if size and owner not in found]:
        raise EncoderError(
            f"{path}: {len(missing)} of {len(layout.sizes)} owners of weights are missing, as "
            f"{missing[0]}; it does not belong to the other files of its folder"
        )


def read_facts(folder: Path) -> tuple[Layout, dict[str, TaskEntry], dict[str, Any]]:
    """The layout, the tasks and the configuration of a bundle or of an exported folder."""
    check_manifest(folder)
    config, where = read_config(folder), f"{folder}/config.json"
    listed = read_yaml(folder / "tasks.yaml", EncoderError)
    if len(listed) > MOST_TASKS:
        raise EncoderError(f"{folder}/tasks.yaml has {len(listed)} tasks; at most {MOST_TASKS}")
    entries = {
        name: to_value(TaskEntry, entry, where=f"{folder}/tasks.yaml", error=EncoderError)
        for name, entry in listed.items()
    }
    shape, given = config.get("encoder"), {key: config.get(key) for key in READING_KEYS}
    encoder = to_value(EncoderShape, shape, where=f"{where}: encoder", error=EncoderError)
    reading = to_value(Reading, given, where=where, error=EncoderError)
    plan = read_plan(read_yaml(folder / "plan.yaml", EncoderError))
    steps = len(entries) * (encoder.depth + len(plan.late) + len(plan.additions))
    if steps > MOST_STEPS:
        raise EncoderError(
            f"{folder}: {len(entries)} tasks pass {steps:,} layers together, more than "
            f"{MOST_STEPS:,}; its tasks.yaml, plan.yaml and config.json do not belong together"
        )
    layout = lay_out(plan, [entry.task(name) for name, entry in entries.items()], encoder, reading)
    check_length(layout.reading, layout.encoder)
    return layout, entries, check_facts(config, where)


def read_config(folder: Path) -> dict[str, Any]:
    advice = "pass the folder `model` of a run"
    try:
        config = read_json(folder / "config.json")
    except UsageError as cause:
        raise EncoderError(f"{folder} is not a bundle: {cause}; {advice}") from cause
    if config.get("mops_bundle") != FORMAT:
        raise EncoderError(f"{folder} is not a bundle of this version of mops; {advice}")
    return config


class Predictor:
    """A loaded bundle on a device; any number of threads may use it."""

    def __init__(self, bundle: Loaded, device: Device = "cpu") -> None:
        self.bundle = bundle
        self.compute = bundle.prepare(device)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.bundle.layout.tasks)

    def predict(
        self,
        data: str | Frame,
        texts: Texts | None = None,
        *,
        task: str | None = None,
        text: str | Sequence[str] = (),
    ) -> Any:
        """The answers of a task to texts, as a list; or those of all tasks to a table.

        `predict("sentiment", ["A lovely film."])` gives labels or numbers. `predict(frame)` takes a
        DataFrame, a `datasets.Dataset` or a list of dicts, and returns the same with the answers of
        every task that its columns fit (or of `task`), and the probability of each label under
        `task.label`. `text` names the columns with the texts, if they are not those of the task.
        """
        if isinstance(data, str):
            if texts is None:
                raise UsageError(
                    f"predict({data!r}) has no texts; give a task and a list of texts, or a table"
                )
            return self.predict_tasks({data: texts})[data].labels
        columns = [text] if isinstance(text, str) else text
        rows = read_texts(self.bundle.layout.tasks, data, task, columns)
        return to_table(data, self.predict_tasks(rows))

    def predict_tasks(self, texts: Mapping[str, Texts]) -> dict[str, Predictions]:
        """The predictions of each task for its own texts, in one pass.

        Shared layers compute a text once, even if several tasks need it.
        """
        return self.predict_tables(self.tokenise(texts))

    def tokenise(self, texts: Mapping[str, Texts]) -> dict[str, TokenTable]:
        """The tokens that each task reads of its own texts."""
        rows = {task: self.check_texts(task, own) for task, own in texts.items()}
        layout, tables = self.bundle.layout, dict[str, TokenTable]()
        for task, own in rows.items():  # tasks with equal rows share one table
            reading = layout.reading.of(task)
            same = [
                table
                for other, table in tables.items()
                if rows[other] == own
                and layout.reading.of(other).pair == reading.pair
                and (table.has_words or not layout.tasks[task].answer.reads_words)
            ]
            has_words = layout.tasks[task].answer.reads_words
            with self.bundle.tokenising:
                tables[task] = (
                    same[0] if same else tokenise(self.bundle.tokenizer, own, reading, has_words)
                )
        return tables

    def predict_tables(self, tables: Mapping[str, TokenTable]) -> dict[str, Predictions]:
        """The predictions of each task for its own rows, in one pass."""
        tasks, outputs = self.bundle.layout.tasks, self.compute(tables)
        return {task: decide(tasks[task], outputs[task]) for task in tables}

    def find_cut(self, task: str, texts: Texts, table: TokenTable) -> NDArray[np.int64]:
        """Which of the rows in a table have tokens beyond max_length, which are not read."""
        if not table.cut:
            return np.zeros(0, np.int64)
        reading, rows = self.bundle.layout.reading.of(task), self.check_texts(task, texts)
        with self.bundle.tokenising:
            lengths = full_lengths(self.bundle.tokenizer, rows, reading, table)
        is_cut = lengths.reshape(-1, table.per_row) > reading.max_length
        return np.flatnonzero(is_cut.any(axis=1))

    def stream(
        self, rows: Mapping[tuple[str, ...], Iterator[Row]]
    ) -> Iterator[tuple[list[list[Row]], dict[str, Predictions]]]:
        """Predictions for any number of rows in constant memory, window by window.

        Each group of tasks has its own rows; the windows come in the order of the groups.
        """
        for windows in take_windows(rows.values()):
            yield windows, self.predict_windows(tuple(rows), windows)

    def predict_windows(
        self, groups: Sequence[tuple[str, ...]], windows: Sequence[Sequence[Row]]
    ) -> dict[str, Predictions]:
        """The predictions of each group of tasks for its own rows."""
        texts = {
            task: [row.texts for row in window]
            for tasks, window in zip(groups, windows, strict=True)
            for task in tasks
        }
        try:
            return self.predict_tasks(texts)
        except OutputError as error:
            own = next(n for n, tasks in enumerate(groups) if error.task in tasks)
            where = windows[own][error.rows[0]].where
            raise OutputError(error.task, error.rows, where) from None

    def check_texts(self, task: str, texts: Texts) -> list[tuple[str, ...]]:
        """The texts as tuples; refuses texts that the task cannot read."""
        known = self.bundle.layout.tasks
        if task not in known:
            raise UsageError(
                f"the model has no task {task!r}; it has {', '.join(known)}.{nearest(task, known)}"
            )
        if is_single(texts):
            raise UsageError("texts must be a list: write [text] instead of text")
        rows: list[tuple[Any, ...]] = [(row,) if is_single(row) else tuple(row) for row in texts]
        count = len(known[task].text)
        for number, row in enumerate(rows, start=1):
            if len(row) != count:
                raise UsageError(f"task {task!r} takes {count} text(s) per row, but got {len(row)}")
            if other := [text for text in row if not isinstance(text, str)]:
                raise UsageError(f"row {number} has {other[0]!r}, which is not a text")
        return rows


def is_single(value: object) -> bool:
    """Whether a value is one text, or nothing of several."""
    return isinstance(value, str) or not isinstance(value, Iterable)


def take_windows(rows: Iterable[Iterator[Row]]) -> Iterator[list[list[Row]]]:
    """The next rows of each iterator, until all have ended."""
    groups = list(rows)
    while any(windows := [list(islice(group, WINDOW)) for group in groups]):
        yield windows


def load(folder: str | Path, device: str = "cpu") -> Predictor:
    """Load a trained model from its bundle, or an exported one from its folder."""
    return Predictor(load_any(to_path(folder, "folder")), device)


def load_any(folder: Path) -> Loaded:
    if not (folder / GRAPH).is_file():
        return load_bundle(folder)
    from mops.predict.onnx import load_exported

    return load_exported(folder)
