"""Gradients summed over processes: dense ones in buckets, those of words as rows.

One training on several processes, as torchrun starts them.

Each process takes its share of the rows of every step; the gradients are added up before they are
combined and clipped, so that all processes move their weights alike. A task's loss is a mean over
its rows, so each process counts by its part of the rows (or of their class weights) of the joined
batch, and what is added up is the gradient of the joined batch, also where parts are unequal. The
first process alone writes, judges and prints.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import count
from typing import Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from mops.config.training import Training
from mops.data.batches import TaskData
from mops.data.schedule import Place
from mops.errors import RunError

BUCKET = 1 << 22  # numbers that travel together: 16 MiB
NONE, DENSE, ROWS = 0, 1, 2  # forms of a gradient


def add_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """In every process the same parameters in the same order; one may have no gradient here."""
    if not parameters:
        return
    forms = torch.tensor([form_of(parameter) for parameter in parameters], dtype=torch.uint8)
    dist.all_reduce(forms, dist.ReduceOp.MAX)
    found = list(zip(parameters, forms.tolist(), strict=True))
    for parameter in (p for p, form in found if form == ROWS):
        parameter.grad = added_rows(parameter)
    for bucket in buckets([p for p, form in found if form == DENSE]):
        add_bucket(bucket)


def form_of(parameter: nn.Parameter) -> int:
    if parameter.grad is None:
        return NONE
    return ROWS if parameter.grad.is_sparse else DENSE


def buckets(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Neighbours until a bucket is full; all of one device and kind of number."""
    held: list[nn.Parameter] = []
    for parameter in parameters:
        if held and sum(p.numel() for p in held) + parameter.numel() > BUCKET:
            yield held
            held = []
        held.append(parameter)
    if held:
        yield held


def add_bucket(parameters: Sequence[nn.Parameter]) -> None:
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    pieces = torch.split(flat, [parameter.numel() for parameter in parameters])
    for parameter, gradient, piece in zip(parameters, gradients, pieces, strict=True):
        parameter.grad = gradient.copy_(piece.view_as(gradient))


def added_rows(parameter: nn.Parameter) -> Tensor:
    """The rows of all processes, one after the other, then those of the same word as one."""
    own = parameter.grad
    own = torch.zeros_like(parameter).to_sparse(1) if own is None else own.coalesce()
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([own.indices().shape[1]]))
    sizes = [int(count) for count in counts]
    rows = gathered_rows(own.indices()[0], sizes)
    values = gathered_rows(own.values(), sizes)
    whole = torch.sparse_coo_tensor(rows[None], values, own.shape, check_invariants=False)
    return whole.coalesce()


def gathered_rows(own: Tensor, sizes: Sequence[int]) -> Tensor:
    """The first dimension differs: what is sent is as long as the longest."""
    padded = own.new_zeros(max(sizes), *own.shape[1:])
    padded[: len(own)] = own
    room = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(room, padded)
    return torch.cat([part[:size] for part, size in zip(room, sizes, strict=True)])


Chosen = Mapping[str, Sequence[Place]]
# The others wait while the first one judges. One that is gone is noticed at once.
PATIENCE = timedelta(days=2)
FIRST_ERROR = "first_error"  # in the store of the group: who failed first
NUMBERS = count()  # of the trainings of this process: each has keys of its own in the store


class Together(Protocol):
    """What the processes of one training do in common; here, alone, nothing is to be done."""

    rank: int = 0
    world: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes, judges and prints."""
        return self.rank == 0

    def joined(self, training: Training) -> Training:
        """The settings of one process that takes all rows of a step."""
        return training

    def own(self, chosen: Chosen) -> Chosen:
        """The part of the rows of a step that this process takes."""
        return chosen

    def parts(self, chosen: Chosen, data: Mapping[str, TaskData]) -> dict[str, float]:
        """What this process counts in the mean over the rows of each task; by default 1."""
        return {}

    def complete(
        self, losses: Mapping[str, Tensor], parts: Mapping[str, float]
    ) -> Mapping[str, Tensor]:
        """The losses with a zero for each task of the step that has no row here."""
        return losses

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Each gradient becomes the sum of those of all processes."""
        return

    def add_rows(self, rows_TP: Tensor, reached: list[bool]) -> list[bool]:
        """The same for a gradient per task; a weight is reached where any process reaches it."""
        return reached

    def same_chance(self) -> None:
        """From here on, all draw the random numbers of the first process."""
        return

    def sum_of(self, numbers: Mapping[str, float]) -> Mapping[str, float]:
        """Each number summed over the processes."""
        return numbers

    def told(self, is_so: bool) -> bool:
        """What the first process says."""
        return is_so

    def agree(self, what: str, value: Callable[[], object]) -> None:
        """Stop when it is not the same everywhere."""
        return

    def check_alike(self, parameters: Iterable[nn.Parameter]) -> None:
        """Stop when processes have moved apart."""
        return

    def wait(self) -> None:
        """Until all are here."""
        return

    def first_then_others(self, work: Callable[[], None]) -> None:
        """The first process leaves something on the disk that the others then find."""
        work()


class Alone(Together):
    """The only process."""


ALONE = Alone()


@dataclass(frozen=True)
class Group(Together):
    """One of several processes."""

    rank: int
    world: int

    def joined(self, training: Training) -> Training:
        sizes = training.per_task_batch_size
        larger = (
            {task: self.world * size for task, size in sizes.items()}
            if isinstance(sizes, dict)
            else self.world * sizes
        )
        return training.model_copy(update={"per_task_batch_size": larger})

    def own(self, chosen: Chosen) -> Chosen:
        mine = {task: places[self.rank :: self.world] for task, places in chosen.items()}
        return {task: places for task, places in mine.items() if places}

    def parts(self, chosen: Chosen, data: Mapping[str, TaskData]) -> dict[str, float]:
        mine = self.own(chosen)
        return {
            task: mass(data[task], mine.get(task, ())) / mass(data[task], places)
            for task, places in chosen.items()
        }

    def complete(
        self, losses: Mapping[str, Tensor], parts: Mapping[str, float]
    ) -> Mapping[str, Tensor]:
        nothing = next(iter(losses.values())).new_zeros(())
        return {task: losses.get(task, nothing) for task in parts}

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        add_gradients(list(parameters))

    def add_rows(self, rows_TP: Tensor, reached: list[bool]) -> list[bool]:
        dist.all_reduce(rows_TP)
        anywhere = torch.tensor(reached, dtype=torch.uint8)
        dist.all_reduce(anywhere, dist.ReduceOp.MAX)
        return [bool(is_reached) for is_reached in anywhere]

    def same_chance(self) -> None:
        state = torch.get_rng_state()
        dist.broadcast(state, src=0)
        torch.set_rng_state(state)

    def sum_of(self, numbers: Mapping[str, float]) -> Mapping[str, float]:
        values = torch.tensor(list(numbers.values()), dtype=torch.float64)
        dist.all_reduce(values)
        return dict(zip(numbers, values.tolist(), strict=True))

    def told(self, is_so: bool) -> bool:
        answer = torch.tensor([is_so], dtype=torch.uint8)
        dist.broadcast(answer, src=0)
        return bool(answer)

    def agree(self, what: str, value: Callable[[], object]) -> None:
        digest = hashlib.sha256(repr(value()).encode()).digest()
        mine = torch.from_numpy(np.frombuffer(digest, np.int64).copy())
        firsts = mine.clone()
        dist.broadcast(firsts, src=0)
        is_other = 0.0 if torch.equal(mine, firsts) else 1.0
        if self.sum_of({"others": is_other})["others"]:
            raise RunError(
                f"{what} is not the same in all {self.world} processes; they need the same mops, "
                "files and kind of machine, and a folder of the run (--out) that all of them see"
            )

    def check_alike(self, parameters: Iterable[nn.Parameter]) -> None:
        self.agree("the weights", lambda: [float(p.detach().sum()) for p in parameters])

    def wait(self) -> None:
        self.told(True)

    def first_then_others(self, work: Callable[[], None]) -> None:
        if self.is_first:
            work()
        self.wait()
        if not self.is_first:
            work()


def mass(data: TaskData, places: Sequence[Place]) -> float:
    """What rows count in the mean of a loss: 1 each, or the weight of their class."""
    if not data.task.class_weights:
        return len(places)
    classes = data.targets[[place.row for place in places]].astype(int) if places else ()
    return float(sum(data.task.class_weights[number] for number in classes))


# ------------------------------------------------------------------ how they meet


def asked_world() -> int:
    """The processes that torchrun (or who sets the same variables) started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "MASTER_ADDR" in os.environ else 1


def is_first_process() -> bool:
    return asked_world() == 1 or os.environ.get("RANK", "0") == "0"


def processes_here() -> int:
    """Of the training, on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if asked_world() > 1 else 1


@contextmanager
def gathered() -> Iterator[Together]:
    """All processes of a training; whoever fails first says why, the others end without a word."""
    if asked_world() == 1:
        yield ALONE
        return
    whole, rank, world = meeting_place()
    store = PrefixStore(f"mops/{next(NUMBERS)}", whole)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=PATIENCE)
    try:
        yield Group(rank, world)
    except BaseException as error:
        if failed_first(store, rank) != rank:
            raise SystemExit(exit_code(error)) from None
        raise
    finally:
        dist.destroy_process_group()


@cache
def meeting_place() -> tuple[Store, int, int]:
    """The store that all processes know, the number of this one, and how many there are."""
    found: tuple[Store, int, int] = next(rendezvous("env://"))
    return found


def failed_first(store: Store, rank: int) -> int:
    """The process that failed before all others; the store outlives any of them."""
    try:
        return int(store.compare_set(FIRST_ERROR, "", str(rank)))
    except RuntimeError:  # the store is gone, and with it the process that held it
        return -1


def exit_code(error: BaseException) -> int:
    return 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", 1)
