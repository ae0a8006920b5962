"""What a user would write with `transformers`: one encoder, a head per task, padded batches.

The same architecture as the plan `shared` on the same weights: mean pooling, bi pairs as
(|u - v|, u * v), cross pairs as one sequence, linear heads, dropout 0.1, AdamW, clipping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertModel
from transformers.utils import logging

from mops.data.batches import Batch, Segment
from mops.tasks import Task
from mops.training.losses import loss_of

logging.set_verbosity_error()
logging.disable_progress_bar()


def padded(segments: Sequence[Segment]) -> dict[str, Tensor]:
    """One padded batch, as a data collator makes it."""
    longest = max(len(segment.ids) for segment in segments)
    found = torch.zeros(3, len(segments), longest, dtype=torch.long)
    for row, segment in enumerate(segments):
        length = len(segment.ids)
        found[0, row, :length] = torch.as_tensor(segment.ids)
        found[1, row, :length] = torch.as_tensor(segment.types)
        found[2, row, :length] = 1
    return {"input_ids": found[0], "token_type_ids": found[1], "attention_mask": found[2]}


def mean_vectors(encoder: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    hidden_BLD = encoder(**inputs).last_hidden_state
    mask_BL1 = inputs["attention_mask"][:, :, None].to(hidden_BLD.dtype)
    vectors: Tensor = (hidden_BLD * mask_BL1).sum(1) / mask_BL1.sum(1)
    return vectors


def pair_features(u_RD: Tensor, v_RD: Tensor) -> Tensor:
    return torch.cat([(u_RD - v_RD).abs(), u_RD * v_RD], dim=1)


class Reference(nn.Module):
    """One BertModel and a linear head per task."""

    def __init__(self, folder: str, tasks: Mapping[str, Task], pair: str) -> None:
        super().__init__()
        self.encoder = BertModel.from_pretrained(folder, add_pooling_layer=False)
        width = self.encoder.config.hidden_size
        self.tasks, self.apart = dict(tasks), pair == "bi"
        self.heads = nn.ModuleDict(
            {n: nn.Linear(width * (1 + self.reads_two(t)), t.outputs) for n, t in tasks.items()}
        )
        self.dropout = nn.Dropout(0.1)

    def reads_two(self, task: Task) -> bool:
        return task.is_pair and self.apart

    def forward(self, name: str, segments: Sequence[Segment]) -> Tensor:
        if self.reads_two(self.tasks[name]):
            texts = [mean_vectors(self.encoder, padded(segments[n::2])) for n in range(2)]
            features = pair_features(*texts)
        else:
            features = mean_vectors(self.encoder, padded(segments))
        outputs: Tensor = self.heads[name](self.dropout(features))
        return outputs


def reference_step(model: Reference, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    """Forward of each task, the sum of the losses, backward, clipping, optimizer step."""
    model.train()
    optimizer.zero_grad()
    losses = []
    for name, targets in batch.targets.items():
        segments = [segment for segment in batch.segments if name in segment.tasks]
        outputs = model(name, segments)
        losses.append(loss_of(model.tasks[name], outputs, torch.as_tensor(targets).float()))
    loss = torch.stack(losses).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())
