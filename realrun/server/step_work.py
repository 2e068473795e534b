"""The device work of one step: a forward pass, and a sampled token for each row that samples."""

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from realrun.runner.model_runner import ModelRunner, Prepared
from realrun.tokens.outputs import SAMPLED_LAST
from realrun.tokens.sampling import SamplingDraws, sample
from sim.core.arrays import Int64


@dataclass(frozen=True, slots=True, eq=False)
class StepInputs:
    """Token ids and slots of a step, on the device.

    Under overlap the host launches a step before it knows the tokens of the step before. `resolve`
    fills these tokens in on the device.

    Attributes:
        token_ids: int64 [num_tokens]; those at `continued` are filled in by `resolve`.
        continued: int64, the indices in `token_ids` of tokens that the step before samples.
        continued_slots: int64, the slots of these requests.
        sample_slots: int64 [num_samples], the slots of the requests that sample.
    """

    token_ids: Tensor
    continued: Tensor
    continued_slots: Tensor
    sample_slots: Tensor

    def resolve(self, last_tokens: Tensor) -> Tensor:
        """The complete token ids; `last_tokens` has the last sampled token of each slot."""
        if len(self.continued):
            self.token_ids[self.continued] = last_tokens[self.continued_slots]
        return self.token_ids


def step_inputs(
    token_ids: Int64, token_slots: Int64, sample_slots: Int64, device: torch.device
) -> StepInputs:
    """Copy a step's tokens to the device in one transfer. On CUDA this only enqueues the copy.

    Args:
        token_ids: int64 [num_tokens]; SAMPLED_LAST for tokens that only the device knows.
        token_slots: int64 [num_tokens], the slot of each token's request.
        sample_slots: int64 [num_samples], the slots of the requests that sample.
        device: the device to copy to.
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
    """The work of a prepared step; the device's stream calls it.

    Attributes:
        sample_ns: host time to enqueue the sampling, or on a CPU to sample. 0 before the call.
    """

    def __init__(
        self,
        runner: ModelRunner,
        prepared: Prepared,
        inputs: StepInputs,
        last_tokens: Tensor,
        drawn: SamplingDraws | None = None,
    ) -> None:
        self._runner = runner
        self._prepared = prepared
        self._inputs = inputs
        self._last_tokens = last_tokens
        self._drawn = drawn
        self.sample_ns = 0

    def __call__(self) -> Tensor:
        """Run the step; returns the sampled tokens on the device, int64 [num_samples]."""
        token_ids = self._inputs.resolve(self._last_tokens)
        logits = self._runner.forward(self._prepared, token_ids)
        begin_ns = time.perf_counter_ns()
        sampled = sample(logits, self._drawn)
        self._last_tokens.index_copy_(0, self._inputs.sample_slots, sampled)
        self.sample_ns = time.perf_counter_ns() - begin_ns
        return sampled
