"""One training on several processes, as torchrun starts them.

Each process takes its part of the rows of every step. Gradients are summed before they are combined
and clipped, so all processes apply the same update. A task's loss is a mean over its rows, so each
process counts by its fraction of the rows (or of their class weights): the sum is the gradient of
the joined batch, also where the parts are unequal. Only the first process writes, evaluates and
prints.
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

Chosen = Mapping[str, Sequence[Place]]  # task -> its rows of a step


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train one network. A single process has nothing to exchange."""

    rank: int = 0
    world: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes, evaluates and prints."""
        return self.rank == 0

    def joined(self, training: Training) -> Training:
        """The settings of a single process that takes all rows of a step."""
        sizes = training.per_task_batch_size
        larger = (
            {task: self.world * size for task, size in sizes.items()}
            if isinstance(sizes, dict)
            else self.world * sizes
        )
        return training.model_copy(update={"per_task_batch_size": larger})

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
            task: row_weight(data[task], mine.get(task, ())) / row_weight(data[task], places)
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
        """Replace each gradient by its sum over the processes."""
        if self.world > 1:
            sum_gradients(list(parameters))

    def sum_jacobian(self, rows_TP: Tensor, reached: list[bool]) -> list[bool]:
        """Sum one gradient per task; a weight is reached where any process reaches it."""
        if self.world == 1:
            return reached
        dist.all_reduce(rows_TP)
        anywhere = torch.tensor(reached, dtype=torch.uint8)
        dist.all_reduce(anywhere, dist.ReduceOp.MAX)
        return [bool(is_reached) for is_reached in anywhere]

    def sync_random_state(self) -> None:
        """Give all processes the random state of the first."""
        if self.world > 1:
            state = torch.get_rng_state()
            dist.broadcast(state, src=0)
            torch.set_rng_state(state)

    def sum(self, numbers: Mapping[str, float]) -> Mapping[str, float]:
        """Each number summed over the processes."""
        if self.world == 1:
            return numbers
        values = torch.tensor(list(numbers.values()), dtype=torch.float64)
        dist.all_reduce(values)
        return dict(zip(numbers, values.tolist(), strict=True))

    def broadcast(self, value: bool) -> bool:
        """The value of the first process."""
        if self.world == 1:
            return value
        answer = torch.tensor([value], dtype=torch.uint8)
        dist.broadcast(answer, src=0)
        return bool(answer)

    def check_equal(self, what: str, value: Callable[[], object]) -> None:
        """Stop when the value differs between processes."""
        if self.world == 1:
            return
        digest = hashlib.sha256(repr(value()).encode()).digest()
        mine = torch.from_numpy(np.frombuffer(digest, np.int64).copy())
        firsts = mine.clone()
        dist.broadcast(firsts, src=0)
        differs = 0.0 if torch.equal(mine, firsts) else 1.0
        if self.sum({"differ": differs})["differ"]:
            raise RunError(
                f"{what} is not the same in all {self.world} processes; they need the same mops, "
                "files and kind of machine, and a folder of the run (--out) that all of them see"
            )

    def wait(self) -> None:
        """Wait until all processes are here."""
        self.broadcast(True)

    def first_then_others(self, work: Callable[[], None]) -> None:
        """Let the first process leave something on disk that the others then find."""
        if self.is_first:
            work()
        self.wait()
        if not self.is_first:
            work()


ALONE = ProcessGroup()


def row_weight(data: TaskData, places: Sequence[Place]) -> float:
    """The weight of some rows in the mean of a loss: 1 each, or that of their class."""
    if not data.task.class_weights:
        return len(places)
    classes = data.targets[[place.row for place in places]].astype(int) if places else ()
    return float(sum(data.task.class_weights[number] for number in classes))


# ------------------------------------------------------------------ sums of gradients

BUCKET = 1 << 22  # numbers that are sent together: 16 MiB
NONE, DENSE, SPARSE = 0, 1, 2  # forms of a gradient


def sum_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Sum dense gradients in buckets and sparse ones by their rows.

    All processes name the same parameters in the same order; a gradient may be missing here.
    """
    if not parameters:
        return
    forms = torch.tensor([gradient_form(parameter) for parameter in parameters], dtype=torch.uint8)
    dist.all_reduce(forms, dist.ReduceOp.MAX)
    formed = list(zip(parameters, forms.tolist(), strict=True))
    for parameter in (p for p, form in formed if form == SPARSE):
        parameter.grad = summed_rows(parameter)
    for bucket in buckets([p for p, form in formed if form == DENSE]):
        sum_bucket(bucket)


def gradient_form(parameter: nn.Parameter) -> int:
    if parameter.grad is None:
        return NONE
    return SPARSE if parameter.grad.is_sparse else DENSE


def buckets(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Neighbouring parameters, until a bucket is full."""
    bucket: list[nn.Parameter] = []
    for parameter in parameters:
        if bucket and sum(p.numel() for p in bucket) + parameter.numel() > BUCKET:
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket


def sum_bucket(parameters: Sequence[nn.Parameter]) -> None:
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    pieces = torch.split(flat, [parameter.numel() for parameter in parameters])
    for parameter, gradient, piece in zip(parameters, gradients, pieces, strict=True):
        parameter.grad = gradient.copy_(piece.view_as(gradient))


def summed_rows(parameter: nn.Parameter) -> Tensor:
    """The sparse rows of all processes; those of the same word are added."""
    own = parameter.grad
    own = torch.zeros_like(parameter).to_sparse(1) if own is None else own.coalesce()
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([own.indices().shape[1]]))
    sizes = [int(count) for count in counts]
    rows = gather_rows(own.indices()[0], sizes)
    values = gather_rows(own.values(), sizes)
    whole = torch.sparse_coo_tensor(rows[None], values, own.shape, check_invariants=False)
    return whole.coalesce()


def gather_rows(own: Tensor, sizes: Sequence[int]) -> Tensor:
    """The rows of all processes; each sends as many as the longest, padded."""
    padded = own.new_zeros(max(sizes), *own.shape[1:])
    padded[: len(own)] = own
    received = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(received, padded)
    return torch.cat([part[:size] for part, size in zip(received, sizes, strict=True)])


# ------------------------------------------------------------------ starting a group

# The others wait while the first process evaluates. A process that dies is noticed at once.
TIMEOUT = timedelta(days=2)
FIRST_ERROR = "first_error"  # key in the group's store: the rank that failed first
NUMBERS = count()  # of the trainings of this process: each has keys of its own in the store


def world_size() -> int:
    """The number of processes that torchrun (or its environment variables) started, else 1."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "MASTER_ADDR" in os.environ else 1


def is_first_process() -> bool:
    return world_size() == 1 or os.environ.get("RANK", "0") == "0"


def local_world_size() -> int:
    """The number of these processes on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if world_size() > 1 else 1


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
        if first_failure(store, rank) != rank:
            raise SystemExit(exit_code(error)) from None
        raise
    finally:
        dist.destroy_process_group()


@cache
def meeting_point() -> tuple[Store, int, int]:
    """The store that all processes share, the rank of this one, and how many there are."""
    store, rank, world = next(rendezvous("env://"))
    return store, rank, world


def first_failure(store: Store, rank: int) -> int:
    """The rank of the process that failed first; -1 when the store died with its process."""
    try:
        return int(store.compare_set(FIRST_ERROR, "", str(rank)))
    except RuntimeError:
        return -1


def exit_code(error: BaseException) -> int:
    return 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", 1)
