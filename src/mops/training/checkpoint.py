"""Checkpoints: what a run needs to go on, in one file that appears complete or not at all.

The curve of a run: a line for each logged step and each evaluation, heard by its trackers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import Parameter

from mops.config.recipe import Recipe
from mops.errors import RecipeError, RunError
from mops.files import atomic_write
from mops.model.network import Network
from mops.model.pretrained import read_facts, read_tensors, write_tensors
from mops.training.tracking import Audience, Label, Line, gather


@dataclass
class Progress:
    """How far a run is. Together with the weights and the moments it is the whole state."""

    step: int = 0
    seconds: float = 0.0  # of training steps only
    tokens: int = 0
    best_score: float | None = None
    best_step: int = 0
    evaluations: int = 0
    evaluations_since_best: int = 0
    is_stopped: bool = False  # early
    curve_bytes: int = 0
    step_seconds: list[float] = field(default_factory=list)
    shares: dict[str, list[float]] = field(default_factory=dict)  # of tasks in shared gradients
    frozen_seconds: float = 0.0  # before steps, for what is frozen
    frozen_computed: int = 0  # sequences
    frozen_found: int = 0  # in the cache
    batched: int = 1  # networks that trained together; times are theirs divided by it
    processes: int = 1  # that train one network


class Part(Protocol):
    """A part of the training that may learn and remember something; by default neither."""

    def parameters(self) -> Mapping[str, Parameter]:
        """What the optimiser moves, by name."""
        return {}

    def state(self) -> Mapping[str, Tensor]:
        """What a resumed run must know."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Put a saved state back."""
        return


def save_state(
    path: Path,
    network: Network,
    optimiser: torch.optim.Optimizer,
    progress: Progress,
    key: str,
    parts: Mapping[str, Part],
) -> None:
    """Weights, Adam's moments and the progress; `key` names the recipe and the data."""
    tensors = {f"weights/{name}": tensor for name, tensor in learnt(network).items()}
    for name, parameter in moved(network, parts):
        for moment, tensor in optimiser.state.get(parameter, {}).items():
            tensors[f"{moment}/{name}"] = tensor
    for part, holder in parts.items():
        tensors |= {f"{part}/{name}": tensor for name, tensor in holder.state().items()}
    facts = {"progress": json.dumps(asdict(progress)), "key": key}
    with atomic_write(path) as draft:
        write_tensors(draft, tensors, facts)


def load_state(
    path: Path,
    network: Network,
    optimiser: torch.optim.Optimizer,
    key: str,
    parts: Mapping[str, Part],
) -> Progress:
    """Put a saved state back; the moments lie where the optimiser expects them."""
    try:
        tensors, facts = read_tensors(path)
    except OSError as cause:
        raise RunError(
            f"{path} cannot be read: {cause.strerror}; delete the run folder and start again"
        ) from cause
    if facts["key"] != key:
        raise RecipeError(
            f"{path.parent.parent} was started on other data or other encoder weights; "
            "put the files back as they were or name another folder with --out"
        )
    device = next(network.parameters()).device
    put_back(path, network, within("weights", tensors))
    for part, holder in parts.items():
        holder.restore(within(part, tensors))
    for name, parameter in moved(network, parts):
        moments = {
            moment: tensors[f"{moment}/{name}"].to(device, copy=True)
            for moment in ("step", "exp_avg", "exp_avg_sq")
            if f"{moment}/{name}" in tensors
        }
        if moments:
            optimiser.state[parameter] = moments
    return Progress(**json.loads(facts["progress"]))


def moved(network: Network, parts: Mapping[str, Part]) -> Iterator[tuple[str, Parameter]]:
    """Everything that the optimiser may move, by its name in the file."""
    for owner, name, parameter in network.owner_parameters():
        yield f"{owner}.{name}", parameter
    for part, holder in parts.items():
        for name, parameter in holder.parameters().items():
            yield f"{part}/{name}", parameter


def within(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under a prefix, without it."""
    start = f"{prefix}/"
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}


def save_best(path: Path, network: Network) -> None:
    with atomic_write(path) as draft:
        write_tensors(draft, learnt(network))


def load_best(path: Path, network: Network) -> None:
    """Put the best state back; without one the last state stays."""
    if path.is_file():
        put_back(path, network, read_tensors(path)[0])


def learnt(network: Network) -> dict[str, Tensor]:
    """The weights of owners that learn; what is always frozen comes from where it came first."""
    rates = network.layout.rates
    return {k: w for k, w in network.weights().items() if rates[owner_of(k)] > 0}


def owner_of(key: str) -> str:
    """`head/sentiment` of `head/sentiment.output.weight`: names of owners have no dots."""
    return key.partition(".")[0]


def put_back(path: Path, network: Network, weights: Mapping[str, Tensor]) -> None:
    """Fill what learns, strictly: nothing may be missing, left over or of another shape."""
    ours = learnt(network)
    wrong = set(ours) ^ set(weights)
    wrong |= {k for k in set(ours) & set(weights) if ours[k].shape != weights[k].shape}
    if wrong:
        raise RunError(
            f"{path} does not fit its recipe: {len(wrong)} tensors are missing, left over or of "
            f"another shape, such as {min(wrong)!r}; delete the run folder and start again"
        )
    for key, weight in ours.items():
        weight.copy_(weights[key])


def saved_step(path: Path) -> int:
    """The step of a saved state, without its tensors; 0 where there is none or it is damaged."""
    try:
        return int(json.loads(read_facts(path)["progress"])["step"])
    except OSError:
        return 0


@dataclass
class Curve:
    """A file of JSON lines, and who hears them."""

    path: Path
    audience: Audience = field(default_factory=Audience)

    def write(self, line: Line) -> int:
        """Append a line; the bytes of the file so far."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                size = file.tell()
        except OSError as cause:
            raise RunError(
                f"cannot write {self.path}: {cause.strerror}; free some space"
            ) from cause
        self.audience.hear(line)
        return size

    @contextmanager
    def heard(
        self, recipe: Recipe, label: Label, *, kept_bytes: int, state: Path
    ) -> Iterator[None]:
        """The recipe's trackers hear the lines; a run that breaks off is ended without scores."""
        self.audience = gather(recipe, label, curve=self.path, kept_bytes=kept_bytes, state=state)
        try:
            yield
        finally:
            self.audience.end()

    def cut(self, size: int) -> None:
        """Forget lines that were written after the state that a run goes on from."""
        with self.path.open("ab") as file:
            file.truncate(size)
