"""The seam between the model and paged attention."""

from typing import Protocol

from torch import Tensor

from realrun.batch_plan import BatchPlan
from realrun.plan_tensors import PlanTensors


class StepAttention(Protocol):
    """Attention with the rows of one plan; called for each layer in turn."""

    def run(self, layer: int, query: Tensor, kv: Tensor, inputs: PlanTensors) -> Tensor:
        """Attend. Enqueues work, waits for nothing.

        Args:
            layer: index of the layer.
            query: [num_tokens, num_heads, head_dim], positions applied.
            kv: the layer's [num_pages + 1, 2, page_size, num_kv_heads, head_dim]; the new
                tokens' K and V are written already.
            inputs: the plan on the device.

        Returns:
            [num_tokens, num_heads, head_dim].
        """
        ...


class AttentionBackend(Protocol):
    """Causal attention over paged K and V.

    The softmax scale is 1 / sqrt(head_dim); a model that scales otherwise scales its queries.
    """

    def plan(self, plan: BatchPlan) -> StepAttention:
        """Host work of a step, before its forward pass.

        The passes planned before may still run on the device, or on a CPU have yet to run: what
        they read must stay as it is.
        """
        ...
