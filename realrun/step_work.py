"""What one step does on the device: the forward pass, and a token for each row that samples."""

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from realrun.batch_plan import Int64s
from realrun.runner import ModelRunner, Prepared
from realrun.tokens import SAMPLED_LAST


@dataclass(frozen=True, slots=True, eq=False)
class StepInputs:
    """Token ids and slots of a step, on the device.

    Attributes:
        token_ids: int64 [num_tokens]; rows that `continued` names are filled in by `resolve`.
        continued: int64, places in `token_ids` that take the token their request sampled last.
        continued_slots: int64, the slots of those requests.
        sample_slots: int64 [num_samples], the slots of the requests that sample.
    """

    token_ids: Tensor
    continued: Tensor
    continued_slots: Tensor
    sample_slots: Tensor

    def resolve(self, last_tokens: Tensor) -> Tensor:
        """Token ids with nothing left open; `last_tokens` has one entry a slot."""
        if len(self.continued):
            self.token_ids[self.continued] = last_tokens[self.continued_slots]
        return self.token_ids


def step_inputs(
    token_ids: Int64s, token_slots: Int64s, sample_slots: Int64s, device: torch.device
) -> StepInputs:
    """Move a step's tokens to the device in one copy, which is enqueued, not waited for.

    Args:
        token_ids: int64 [num_tokens], SAMPLED_LAST where only the device knows.
        token_slots: int64 [num_tokens], the slot of each token's request.
        sample_slots: int64 [num_samples].
        device: where to.
    """
    continued = np.flatnonzero(token_ids == SAMPLED_LAST)
    parts = [token_ids, continued, token_slots[continued], sample_slots]
    host = torch.empty(
        sum(map(len, parts)), dtype=torch.int64, device="cpu", pin_memory=device.type == "cuda"
    )
    np.concatenate(parts, out=host.numpy())
    moved = host.to(device, non_blocking=True)
    return StepInputs(*torch.split(moved, [len(part) for part in parts]))


class StepWork:
    """Runs a prepared step when the device's queue comes to it.

    Attributes:
        sample_ns: host time of sampling: to enqueue it, or on a CPU to do it. 0 until it ran.
    """

    def __init__(
        self, runner: ModelRunner, prepared: Prepared, inputs: StepInputs, last_tokens: Tensor
    ) -> None:
        self._runner = runner
        self._prepared = prepared
        self._inputs = inputs
        self._last_tokens = last_tokens
        self.sample_ns = 0

    def __call__(self) -> Tensor:
        """Sampled tokens, int64 [num_samples], on the device."""
        token_ids = self._inputs.resolve(self._last_tokens)
        logits = self._runner.forward(self._prepared, token_ids)
        begin_ns = time.perf_counter_ns()
        sampled = logits.argmax(dim=-1)
        self._last_tokens.index_copy_(0, self._inputs.sample_slots, sampled)
        self.sample_ns = time.perf_counter_ns() - begin_ns
        return sampled
