"""An exported model: its graph runs in ONNX Runtime instead of torch.

The graph has the encoder of every branch of the plan, which gives a vector for each sequence, and
a head for each task. A session is opened for the branches that some sequences need, with the heads
of tagging tasks, and one for each other head. Every distinct sequence is computed once, in batches
of about equal length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from mops.config.training import TaskEntry
from mops.data.batches import Segment
from mops.data.tokenizer import load_tokenizer
from mops.errors import EncoderError, UsageError
from mops.kinds.tags import as_objects
from mops.plans.layout import Layout
from mops.predict.bundle import GRAPH, Compute, Device, read_facts
from mops.predict.inference import Ints, Outputs, answer_windows, chunks_by_length

IDS, MASK, TYPES, PAIRS = "input_ids", "attention_mask", "token_type_ids", "pairs"  # inputs
BATCH_TOKENS = 256  # padded; the activations of a layer stay in the processor's cache
Vectors = Mapping[str, Any]  # name of an output -> its value for each sequence


def is_apart(layout: Layout, task: str) -> bool:
    """Whether a row of the task is two sequences."""
    return layout.reading.of(task).texts_apart(layout.tasks[task].is_pair)


def encoder_outputs(layout: Layout) -> dict[str, str]:
    """Task -> the output of its sequences: their vectors, which tasks on one branch share.

    A task that answers each word has its own outputs there, for every token.
    """
    top = layout.branches[-1]
    return {
        name: name
        if task.answer.reads_words
        else f"vectors/{'+'.join(other for other in top if top[other] == top[name])}"
        for name, task in layout.tasks.items()
    }


class OnnxNetwork:
    """The graph of an exported folder; any number of threads may use it."""

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path, self.layout = path, layout
        self.names = encoder_outputs(layout)
        self.sessions: dict[tuple[str, ...], Any] = {}  # by outputs
        self.opening = Lock()

    def compute_outputs(self, tables: Mapping[str, Any]) -> Outputs:
        """The outputs of each task for every row of its table."""
        return answer_windows(self.layout, tables, self.answer)

    def answer(self, segments: Sequence[Segment], numbers: Mapping[str, Ints]) -> Outputs:
        """The outputs for rows, given as the numbers of their sequences."""
        with failures_as_errors(self.path):
            vectors = self.encode(segments)
            return {
                task: self.run_head(task, vectors[self.names[task]], own)
                for task, own in numbers.items()
            }

    def run_head(self, task: str, vectors_SD: NDArray[Any], own: Ints) -> Any:
        if (name := self.names[task]) == task:  # the encoder's session has run the head
            return vectors_SD[own]
        feed: dict[str, Any] = {name: vectors_SD[own]}
        if is_apart(self.layout, task):
            feed = {name: vectors_SD, PAIRS: own.reshape(-1, 2)}
        return self.session(tuple(feed), (task,)).run(None, feed)[0]

    def encode(self, segments: Sequence[Segment]) -> Vectors:
        """What the heads of its tasks need of each sequence, or what they give for each token."""
        shape = len(segments), self.layout.encoder.width
        vectors: dict[str, Any] = {
            name: np.empty(shape[:1], object) if name == task else np.zeros(shape, np.float32)
            for task, name in self.names.items()
        }
        inputs = (IDS, MASK, TYPES) if self.layout.encoder.types else (IDS, MASK)
        for outputs, numbers in self.group(segments).items():
            session = self.session(inputs, outputs)
            for chunk in chunks_by_length([segments[n] for n in numbers], BATCH_TOKENS):
                places = numbers[chunk]
                feed = pad_segments([segments[n] for n in places])
                found = session.run(None, {name: feed[name] for name in inputs})
                for name, values in zip(outputs, found, strict=True):
                    vectors[name][places] = as_objects(values) if values.ndim == 3 else values
        return vectors

    def group(self, segments: Sequence[Segment]) -> dict[tuple[str, ...], Ints]:
        """The outputs that sequences need -> their numbers."""
        groups: dict[tuple[str, ...], list[int]] = {}
        for number, segment in enumerate(segments):
            needed = tuple(sorted({self.names[task] for task in segment.tasks}))
            groups.setdefault(needed, []).append(number)
        return {outputs: np.array(numbers) for outputs, numbers in groups.items()}

    def session(self, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Any:
        with self.opening:
            if outputs not in self.sessions:
                self.sessions[outputs] = open_session(self.path, inputs, outputs)
            return self.sessions[outputs]


def pad_segments(segments: Sequence[Segment]) -> dict[str, Ints]:
    """Sequences as the rows of a batch."""
    lengths = np.array([len(segment.ids) for segment in segments])
    is_token = np.arange(lengths.max()) < lengths[:, None]
    feed = {MASK: is_token.astype(np.int64)}
    for name, kind in ((IDS, "ids"), (TYPES, "types")):
        feed[name] = np.zeros(is_token.shape, np.int64)
        feed[name][is_token] = np.concatenate([getattr(each, kind) for each in segments])
    return feed


@contextmanager
def failures_as_errors(path: Path) -> Iterator[None]:
    """One line for a graph that is damaged or of another model.

    The exceptions of the libraries have no base of their own.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as cause:
        reason = " ".join(str(cause).split())[:160]
        raise EncoderError(
            f"{path} cannot be run: {reason}; its files are damaged, of another model, or links: "
            "fetch or export the folder again"
        ) from cause


def open_session(path: Path, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """The part of a graph between some values; its weights are mapped from the file."""
    import onnx
    import onnxruntime
    from onnx.utils import Extractor

    model = onnx.load(path, load_external_data=False)
    part = Extractor(model).extract_model(list(inputs), list(outputs))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.enable_mem_pattern = False  # it keeps a plan of memory for every shape
    options.log_severity_level = 3
    set_entry = options.add_session_config_entry
    set_entry("session.model_external_initializers_file_folder_path", str(path.parent))
    set_entry("session.intra_op.allow_spinning", "0")  # a thread that waits costs nothing
    return onnxruntime.InferenceSession(
        part.SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["SkipLayerNormFusion"],  # five times slower than both alone
    )


@dataclass(frozen=True)
class ExportedBundle:
    """A model that was exported, and what is known about it."""

    folder: Path
    network: OnnxNetwork
    tokenizer: Tokenizer
    entries: Mapping[str, TaskEntry]
    config: Mapping[str, Any]
    tokenising: Lock = field(default_factory=Lock, repr=False, compare=False)

    @property
    def layout(self) -> Layout:
        return self.network.layout

    def prepare(self, device: Device) -> Compute:
        if str(device) != "cpu":
            raise UsageError(
                f"an exported model runs on the cpu, not on {device}; set the device cpu"
            )
        return self.network.compute_outputs


def load_exported(folder: Path) -> ExportedBundle:
    """Read an exported folder; its graph is opened when it is first needed."""
    require_onnx()
    layout, entries, config = read_facts(folder)
    network = OnnxNetwork(folder / GRAPH, layout)
    return ExportedBundle(folder, network, load_tokenizer(folder, layout.encoder), entries, config)


def require_onnx() -> None:
    for name in ("onnx", "onnxruntime"):
        if find_spec(name) is None:
            raise UsageError(f"ONNX needs {name}, not installed here; pip install 'mops-nlp[onnx]'")
