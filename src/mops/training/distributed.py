"""One training on several processes, as torchrun starts them.

Each process takes its part of the rows of every step. Gradients are summed before they are combined
and clipped, so all processes apply the same update. A task's loss is a mean over its rows, so each
process counts by its fraction of the rows (or of their class weights): the sum is the gradient of
the joined batch, also where the parts are unequal. Only the first process writes, evaluates and
prints.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import count
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from mops.data.batches import TaskData, split_batches
from mops.data.schedule import Place
from mops.errors import RunError

Chosen = Mapping[str, Sequence[Place]]  # task -> its rows of a step
Key = TypeVar("Key")
BUCKET = 1 << 22  # numbers that are sent together: 16 MiB
NONE, DENSE, SPARSE = 0, 1, 2  # forms of a gradient


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train one network. A single process has nothing to exchange."""

    rank: int = 0
    world: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes, evaluates and prints."""
        return self.rank == 0

    def own(self, chosen: Chosen) -> Chosen:
        """The rows of a step that this process takes."""
        mine = {task: places[self.rank :: self.world] for task, places in chosen.items()}
        return {task: places for task, places in mine.items() if places}

    def parts(self, chosen: Chosen, data: Mapping[str, TaskData]) -> dict[str, float]:
        """Task -> this process's fraction of the mean over its rows; missing: 1."""
        if self.world == 1:
            return {}
        mine = self.own(chosen)
        return {
            task: row_weight(data[task], mine.get(task, ())) / (row_weight(data[task], places) or 1)
            for task, places in chosen.items()
        }

    def add_missing(
        self, losses: Mapping[str, Tensor], parts: Mapping[str, float]
    ) -> Mapping[str, Tensor]:
        """The losses in the order of the step, 0 for a task that has no row here."""
        if self.world == 1:
            return losses
        zero = next(iter(losses.values())).new_zeros(())
        return {task: losses.get(task, zero) for task in parts}

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum dense gradients in buckets and sparse ones, which gloo can do, one by one.

        All processes name the same parameters in the same order; a gradient may be missing here.
        """
        members = list(parameters)
        if self.world == 1 or not members:
            return
        own = [NONE if p.grad is None else SPARSE if p.grad.is_sparse else DENSE for p in members]
        forms = torch.tensor(own, dtype=torch.uint8)
        dist.all_reduce(forms, dist.ReduceOp.MAX)
        for parameter in (members[i] for i in (forms == SPARSE).nonzero()):
            gradient = parameter.grad
            rows = torch.zeros_like(parameter).to_sparse(1) if gradient is None else gradient
            rows = rows.cpu().coalesce()
            dist.all_reduce(rows)
            parameter.grad = rows.to(parameter.device).coalesce()
        dense = [members[i] for i in (forms == DENSE).nonzero()]
        for bucket in split_batches(dense, nn.Parameter.numel, BUCKET):
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(flat)
            pieces = torch.split(flat, [parameter.numel() for parameter in bucket])
            for parameter, gradient, piece in zip(bucket, gradients, pieces, strict=True):
                parameter.grad = gradient.copy_(piece.view_as(gradient))

    def sum_jacobian(self, rows_TP: Tensor, reached: list[bool]) -> list[bool]:
        """Sum one gradient per task; a weight is reached where any process reaches it."""
        if self.world == 1:
            return reached
        dist.all_reduce(rows_TP)
        return [count > 0 for count in self.sum(dict(enumerate(reached))).values()]

    def sync_random_state(self) -> None:
        """Give all processes the random state of the first."""
        if self.world > 1:
            state = torch.get_rng_state()
            dist.broadcast(state, src=0)
            torch.set_rng_state(state)

    def sum(self, numbers: Mapping[Key, float]) -> Mapping[Key, float]:
        """Each number summed over the processes."""
        if self.world == 1:
            return numbers
        values = torch.tensor(list(numbers.values()), dtype=torch.float64)
        dist.all_reduce(values)
        return dict(zip(numbers, values.tolist(), strict=True))

    def broadcast(self, value: bool) -> bool:
        """The value of the first process."""
        return bool(self.sum({"": value and self.is_first})[""])

    def check_equal(self, what: str, value: Callable[[], object]) -> None:
        """Stop when the value differs between processes."""
        if self.world == 1:
            return
        values: list[str] = [""] * self.world
        dist.all_gather_object(values, repr(value()))
        if len(set(values)) > 1:
            raise RunError(
                f"{what} is not the same in all {self.world} processes; they need the same mops, "
                "files and kind of machine, and a folder of the run that all of them see"
            )

    def wait(self) -> None:
        """Wait until all processes are here."""
        self.broadcast(True)


ALONE = ProcessGroup()


def row_weight(data: TaskData, places: Sequence[Place]) -> float:
    """The weight of some rows in the mean of a loss: 1 each, or that of their class."""
    rows = [place.row for place in places]
    targets = data.targets[rows][data.is_known[rows]]
    return float(data.task.answer.row_weights(data.task, targets).sum())


# The others wait while the first process evaluates. A process that dies is noticed at once.
TIMEOUT = timedelta(days=2)
NUMBERS = count()  # of the trainings of this process: each has keys of its own in the store


def world_size() -> int:
    """The number of processes that torchrun (or its environment variables) started, else 1."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "MASTER_ADDR" in os.environ else 1


def is_first_process() -> bool:
    return world_size() == 1 or os.environ.get("RANK", "0") == "0"


# The store that all processes share, the rank of this one, and how many there are.
meeting_point = cache(lambda: next(rendezvous("env://")))


@contextmanager
def process_group() -> Iterator[ProcessGroup]:
    """All processes of a training; only the one that fails first reports its error."""
    if world_size() == 1:
        yield ALONE
        return
    whole, rank, world = meeting_point()
    store = PrefixStore(f"mops/{next(NUMBERS)}", whole)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=TIMEOUT)
    try:
        yield ProcessGroup(rank, world)
    except BaseException as error:
        try:
            first = int(store.compare_set("first_error", "", str(rank)))
        except RuntimeError:  # the store died with its process
            first = -1
        if first != rank:
            is_asked = isinstance(error, KeyboardInterrupt)
            raise SystemExit(130 if is_asked else getattr(error, "exit_code", 1)) from None
        raise
    finally:
        dist.destroy_process_group()
