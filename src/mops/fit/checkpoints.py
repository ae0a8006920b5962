"""Checkpoints: what a run needs to go on, in one file that appears complete or not at all."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from mops.encoder.network import Network
from mops.errors import RunError
from mops.files import beside


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


def save_state(
    path: Path, network: Network, optimiser: torch.optim.Optimizer, progress: Progress, key: str
) -> None:
    """Weights, Adam's moments and the progress; `key` names the recipe and the data."""
    tensors = {f"weights/{name}": tensor for name, tensor in network.weights().items()}
    for owner, name, parameter in network.owner_parameters():
        for moment, tensor in optimiser.state.get(parameter, {}).items():
            tensors[f"{moment}/{owner}.{name}"] = tensor
    facts = {"progress": json.dumps(asdict(progress)), "key": key}
    with beside(path) as draft:
        save_file({name: t.contiguous() for name, t in tensors.items()}, draft, metadata=facts)


def load_state(
    path: Path, network: Network, optimiser: torch.optim.Optimizer, key: str
) -> Progress:
    """Put a saved state back; the moments lie where the optimiser expects them."""
    try:
        with safe_open(path, framework="pt") as file:
            facts: dict[str, Any] = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as cause:
        raise RunError(
            f"{path} cannot be read ({cause}); delete the run folder and start again"
        ) from cause
    if facts["key"] != key:
        raise RunError(
            f"{path.parent.parent} was started on other data; "
            "put the files back as they were or name another folder with --out"
        )
    device = next(network.parameters()).device
    network.bank.load_state_dict(
        {n.removeprefix("weights/"): t for n, t in tensors.items() if n.startswith("weights/")}
    )
    for owner, name, parameter in network.owner_parameters():
        moments = {
            moment: tensors[f"{moment}/{owner}.{name}"].to(device)
            for moment in ("step", "exp_avg", "exp_avg_sq")
            if f"{moment}/{owner}.{name}" in tensors
        }
        if moments:
            optimiser.state[parameter] = moments
    return Progress(**json.loads(facts["progress"]))


def save_best(path: Path, network: Network) -> None:
    with beside(path) as draft:
        save_file({name: t.contiguous() for name, t in network.weights().items()}, draft)
