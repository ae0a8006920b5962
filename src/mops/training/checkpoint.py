"""Checkpoints: all that a run needs to resume, in one file that appears complete or not at all."""

import json
import math
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from torch import Tensor
from torch.nn import Parameter

from mops.errors import EncoderError, RecipeError, RunError, UsageError
from mops.files import atomic_write
from mops.model.network import Network
from mops.model.pretrained import check_tensors, read_tensors, write_tensors
from mops.training.step import Learner
from mops.yaml_io import to_value

STATE, BEST = "state/state.safetensors", "state/best-{}.safetensors"  # in the folder of a run
START_AGAIN = "delete the run folder and start again"
ALL = "all"  # who chooses a best state: all validation rows; else one of their halves


@dataclass
class TrainerState:
    """The progress of a run; with the weights and moments it is the whole state."""

    step: int = 0  # steps taken
    seconds: float = 0.0  # of training steps only
    joules: float = 0.0  # of training steps only; NaN: unknown
    run_seconds: float = 0.0  # of all work, at the last save
    tokens: int = 0
    best: dict[str, tuple[float, int]] = field(default_factory=dict)  # chooser -> score, step
    evaluations: int = 0
    evaluations_since_best: int = 0
    last_score: float | None = None  # of all validation rows
    last_change: float | None = None  # by the last evaluation
    is_stopped: bool = False  # early
    curve_bytes: int = 0
    step_seconds: list[float] = field(default_factory=list)
    shares: dict[str, list[float]] = field(default_factory=dict)  # task -> shares of gradients
    frozen_seconds: float = 0.0  # spent on frozen layers before steps
    frozen_computed: int = 0  # sequences
    frozen_found: int = 0  # sequences found in the cache
    batched: int = 1  # networks trained as one computation; times are divided by it
    processes: int = 1  # that train one network

    @property
    def best_score(self) -> float | None:
        return self.best[ALL][0] if ALL in self.best else None

    @property
    def best_step(self) -> int:
        return self.best[ALL][1] if ALL in self.best else 0


def save(path: Path, learner: Learner, state: TrainerState, key: str) -> None:
    """Write weights, Adam's moments and the state; `key` names the recipe and the data."""
    tensors = {f"weights/{name}": w for name, w in learned_weights(learner.network).items()}
    for name, parameter in updated_parameters(learner):
        for moment, tensor in learner.optimizer.state.get(parameter, {}).items():
            tensors[f"{moment}/{name}"] = tensor
    for part, holder in learner.stateful.items():
        # clones: torchjd names one buffer twice
        tensors |= {f"{part}/{name}": t.clone() for name, t in holder.state_dict().items()}
    with atomic_write(path) as draft:
        write_tensors(draft, tensors, {"progress": json.dumps(asdict(state)), "key": key})


def load(path: Path, learner: Learner, key: str) -> TrainerState:
    """Put saved weights, moments and states back."""
    tensors, facts = read_state(path)
    if missing := [name for name in ("key", "progress") if name not in facts]:
        raise RunError(f"{path} has no {missing[0]}: it is no saved state; {START_AGAIN}")
    if facts["key"] != key:
        raise RecipeError(
            f"{path.parent.parent} was started on other data, with another encoder (weights, "
            "tokenizer or config) or by an older mops; put the files back as they were or name "
            "another folder as `out`"
        )
    state = read_progress(path, facts["progress"])
    for chooser, (_, step) in state.best.items():
        read_best(path.parents[1], chooser, step, state.step, names=())
    restore_weights(path, learner.network, within("weights", tensors))
    for part, holder in learner.stateful.items():
        holder.load_state_dict(within(part, tensors))
    for name, parameter in updated_parameters(learner):
        moments = {
            moment: tensors[f"{moment}/{name}"].to(parameter.device, copy=True)
            for moment in ("step", "exp_avg", "exp_avg_sq")
            if f"{moment}/{name}" in tensors
        }
        if moments:
            learner.optimizer.state[parameter] = moments
    return state


def read_progress(path: Path, text: str) -> TrainerState:
    try:
        return to_value(TrainerState, json.loads(text), where=str(path), error=UsageError)
    except (ValueError, UsageError) as cause:
        raise RunError(f"{path} cannot be read: {cause}; {START_AGAIN}") from cause


def read_state(
    path: Path, names: Collection[str] | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a saved state and the facts beside them."""
    try:
        return read_tensors(path, names)
    except OSError as cause:
        why = cause.strerror or "it is missing"
        raise RunError(f"{path} cannot be read: {why}; {START_AGAIN}") from cause


def saved_step(path: Path) -> int:
    """The step of a checkpoint, without its tensors; 0 where it is missing or damaged."""
    try:
        return int(json.loads(read_tensors(path, names=())[1]["progress"])["step"])
    except (OSError, LookupError, TypeError, ValueError):
        return 0


def save_best(
    folder: Path,
    choosers: Mapping[str, tuple[float, int]],
    network: Network,
    chosen: Mapping[str, Mapping[str, Tensor]],
) -> None:
    """Keep the weights for each chooser (-> score, step); equal ones get a link to the same file.

    `chosen` are tensors that a chooser puts in the place of the network's.
    """
    first = None
    for chooser, (_, step) in choosers.items():
        path, own = folder / BEST.format(chooser), chosen.get(chooser)
        with atomic_write(path) as draft:
            if first is None or own:
                tensors = learned_weights(network) | dict(own or {})
                write_tensors(draft, tensors, {"step": str(step)})
            else:
                link(first, draft)
        first = path


def link(path: Path, other: Path) -> None:
    """A second name of a file, or a copy where the file system has no such names."""
    try:
        os.link(path, other)
    except OSError:
        shutil.copyfile(path, other)


def restore_best(folder: Path, chooser: str, step: int, network: Network) -> None:
    """Put the best state of a chooser, which is of this step, into a network."""
    tensors = read_best(folder, chooser, step)
    restore_weights(folder / BEST.format(chooser), network, tensors)


def read_best(
    folder: Path,
    chooser: str,
    step: int,
    now: float = math.inf,
    names: Collection[str] | None = None,
) -> dict[str, Tensor]:
    """The best state of a chooser, if it is of this step.

    One from after the step `now` is let pass: a killed run wrote it, and will write it again.
    """
    path = folder / BEST.format(chooser)
    tensors, facts = read_state(path, names)
    kept = int(facts.get("step", -1))
    if kept != step and kept <= now:
        raise RunError(
            f"{path} is the state of step {kept}, and the best one was that of step {step}; "
            f"{START_AGAIN}"
        )
    return tensors


def updated_parameters(learner: Learner) -> Iterator[tuple[str, Parameter]]:
    """Everything that the optimizer may update, by its name in the file."""
    for owner, name, parameter in learner.network.owner_parameters():
        yield f"{owner}.{name}", parameter
    for part, holder in learner.stateful.items():
        for name, parameter in holder.named_parameters():
            yield f"{part}/{name}", parameter


def within(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under a prefix, without it."""
    start = f"{prefix}/"
    return {n.removeprefix(start): tensor for n, tensor in tensors.items() if n.startswith(start)}


def learned_weights(network: Network) -> dict[str, Tensor]:
    """The weights of owners that learn; those that never do come from the pretrained files."""
    rates = network.layout.rates  # names of owners have no dots
    return {k: w for k, w in network.weights().items() if rates[k.partition(".")[0]] > 0}


def restore_weights(path: Path, network: Network, weights: Mapping[str, Tensor]) -> None:
    """Fill what learns, strictly: nothing may be missing, left over or of another shape."""
    ours = learned_weights(network)
    try:
        check_tensors(path, weights, ours)
    except EncoderError as cause:
        raise RunError(f"{cause}; {START_AGAIN}") from cause
    for key, weight in ours.items():
        weight.copy_(weights[key])
