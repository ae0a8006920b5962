"""Gradients summed over processes: dense ones in buckets, those of words as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

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
