"""Runs batch plans through the model, eagerly or as a CUDA graph."""

from dataclasses import dataclass

import torch
from torch import Tensor

from realrun.attention.backend import AttentionBackend, StepAttention
from realrun.batches.batch_plan import BatchPlan, one_token_rows, pad_decodes
from realrun.batches.plan_tensors import PlanTensors, plan_tensors
from realrun.model.kv_tensors import KVTensors
from realrun.model.paged_model import PagedModel
from realrun.runner.graphs import RecordedDecodes
from sim.core.errors import InvariantError

# A graph reads a row's K and V once for each of its drafts, and saves the host the launches. With
# Llama-3.1-8B on an H100 (data/h100/draft-steps.jsonl) it is up to 0.8 ms faster where up to 49,152
# tokens are read again, and up to 17 ms slower from 131,072 on; at 65,536 either may be faster.
_MAX_TOKENS_READ_AGAIN = 65_536


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A plan that is ready to run.

    Attributes:
        plan: the plan; padded if a graph runs it.
        inputs: the plan on the device; None for a graph, which has its own copy.
        attention: attention, planned for this step; None for a graph.
        num_samples: rows of logits without padding.
    """

    plan: BatchPlan
    inputs: PlanTensors | None
    attention: StepAttention | None
    num_samples: int


class ModelRunner:
    """A model with KV tensors and an attention backend; with `graphs` it replays decode passes.

    Steps must run in the order in which they were prepared. On a GPU a step's `forward` comes
    before the next step's `prepare`, since both only enqueue work. On a CPU it may come later,
    because another thread runs it.
    """

    def __init__(
        self,
        model: PagedModel,
        kv: KVTensors,
        attention: AttentionBackend,
        *,
        graphs: RecordedDecodes | None = None,
    ) -> None:
        self.model = model
        self.kv = kv
        self.attention = attention
        self.graphs = graphs

    def padded_rows(self, plan: BatchPlan) -> int:
        """Rows of the graph that runs the plan; 0 if it runs eagerly.

        Decode rows with drafts have a row of the graph for each new token.
        """
        if self.graphs is None or not plan.samples_all:
            return 0
        if plan.num_tokens_read_again > _MAX_TOKENS_READ_AGAIN:
            return 0
        return self.graphs.padded_rows(plan.num_tokens)

    def prepare(self, plan: BatchPlan) -> Prepared:
        """Do the host work of a step, and enqueue the copies of its inputs."""
        num_samples = len(plan.sample_tokens)
        num_padded = self.padded_rows(plan)
        if self.graphs is not None and num_padded:
            padded = pad_decodes(one_token_rows(plan), num_padded, self.kv.scratch_page)
            self.graphs.prepare(padded)
            return Prepared(padded, None, None, num_samples)
        attention = self.attention.plan(plan)
        return Prepared(plan, plan_tensors(plan, self.model.device), attention, num_samples)

    @torch.inference_mode()
    def forward(self, prepared: Prepared, token_ids: Tensor) -> Tensor:
        """Run a prepared step. This enqueues work and waits for nothing.

        Args:
            prepared: the result of `prepare`.
            token_ids: int64 [num_tokens] on the device, the new tokens of all rows, row by row.

        Returns:
            Logits [num_samples, vocab_size]. If a graph computed them, its next replay overwrites
            them.
        """
        inputs, attention = prepared.inputs, prepared.attention
        if inputs is not None and attention is not None:
            return self.model.forward(token_ids, inputs, attention, self.kv.layers)
        if self.graphs is None:
            raise InvariantError("a step was prepared for a graph, but there are no graphs")
        logits = self.graphs.replay(prepared.plan.num_rows, token_ids)
        return logits[: prepared.num_samples]
