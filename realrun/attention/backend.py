"""The interface between the model and paged attention."""

from typing import Protocol

from torch import Tensor

from realrun.batches.batch_plan import BatchPlan
from realrun.batches.plan_tensors import PlanTensors


class StepAttention(Protocol):
    """Attention for the rows of one plan; called for each layer in turn."""

    def run(self, layer: int, query: Tensor, kv: Tensor, inputs: PlanTensors) -> Tensor:
        """Compute attention. This enqueues work and waits for nothing.

        Args:
            layer: index of the layer.
            query: [num_tokens, num_heads, head_dim], after rotary embedding if the model has it.
            kv: the layer's tensor of `KVTensors`; it already has the new tokens' K and V.
            inputs: the plan on the device.

        Returns:
            [num_tokens, num_heads, head_dim].
        """
        ...


class AttentionBackend(Protocol):
    """Causal attention over paged K and V.

    Backends scale by 1 / sqrt(head_dim). For a model with another factor, the caller scales the
    queries.
    """

    def plan(self, plan: BatchPlan) -> StepAttention:
        """Do the host work of a step before its forward pass.

        Passes that were planned earlier may still run, or not have started. So a plan must not
        change data that earlier passes read.
        """
        ...
