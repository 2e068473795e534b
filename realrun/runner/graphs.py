"""Decode passes recorded as CUDA graphs: one launch in place of hundreds of kernel launches.

A graph is recorded for each of several row counts: 1, 2, 4, 8, 16, 24 and so on. A batch runs in
the smallest graph that is large enough, padded with rows of one token on the scratch page. Batches
with more rows than the largest graph run eagerly. A decode row with drafts takes one row of a graph
for each of its new tokens.

A recorded pass reads its inputs and writes its logits at fixed addresses, and all graphs share one
pool of memory. So a replay may overwrite the logits of the replay before it. This is safe because
everything is enqueued on one stream, in this order:

    copy the inputs of step k | replay step k | sample step k's tokens into other memory
    copy the inputs of step k + 1 | ...

Nothing may read the logits of step k after its sampling, or from another stream.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from realrun.attention.backend import AttentionBackend, StepAttention
from realrun.batches.batch_plan import BatchPlan, plan_batch
from realrun.batches.plan_tensors import PlanTensors, pack_plan, unpack_plan
from realrun.model.kv_tensors import KVTensors
from realrun.model.paged_model import PagedModel

_SMALLEST_SIZES = (1, 2, 4)
_STEP = 8


class RecordedDecodes(Protocol):
    """Decode passes that were recorded for some row counts, and are replayed with new inputs."""

    @property
    def sizes(self) -> Sequence[int]:
        """The row counts, ascending."""
        ...

    def padded_rows(self, num_rows: int) -> int:
        """Rows of the smallest recorded pass with at least `num_rows` rows; 0 if there is none."""
        ...

    def prepare(self, plan: BatchPlan) -> None:
        """Plan the attention and copy the inputs. The plan is padded to a recorded row count."""
        ...

    def replay(self, num_rows: int, token_ids: Tensor) -> Tensor:
        """Run the pass that was prepared last. This enqueues work and waits for nothing.

        Args:
            num_rows: the pass's number of rows, padding included.
            token_ids: int64 [at most num_rows] on the device, one token for each real row.

        Returns:
            Logits [num_rows, vocab_size]; the next replay overwrites them.
        """
        ...


class RecordedPass(Protocol):
    """A recorded pass.

    Attributes:
        output: the pass's output; each replay overwrites it.
    """

    output: Tensor

    def replay(self) -> None:
        """Enqueue the pass again; it reads the current contents of its inputs."""
        ...


class PassRecorder(Protocol):
    """Records passes; on a GPU this is `realrun.runner.cuda_graph.CudaPassRecorder`."""

    def record(self, work: Callable[[], Tensor]) -> RecordedPass:
        """Call `work` one or more times, and record what it enqueues.

        Args:
            work: must not wait for the device. Its memory comes from the recorder's pool.
        """
        ...


class _DecodePass:
    """A recorded decode pass with a fixed number of rows, and its input tensors."""

    def __init__(
        self,
        model: PagedModel,
        kv: KVTensors,
        attention: AttentionBackend,
        recorder: PassRecorder,
        plan: BatchPlan,
    ) -> None:
        """Record the pass for the number of rows of `plan`."""
        self._model = model
        self._kv = kv
        self._attention = attention
        device = model.device
        self._token_ids = torch.zeros(plan.num_rows, dtype=torch.int64, device=device)
        # The layout of PlanTensors.packed: positions, rows of K, rows of V, sampling tokens.
        packed = torch.zeros(4 * plan.num_rows, dtype=torch.int64, device=device)
        self._inputs: PlanTensors = unpack_plan(packed, plan.num_rows)
        self._planned = self.prepare(plan)
        self._recording = recorder.record(self._forward)

    def prepare(self, plan: BatchPlan) -> StepAttention:
        self._planned = self._attention.plan(plan)
        packed = pack_plan(plan, pinned=self._model.device.type == "cuda")
        self._inputs.packed.copy_(packed, non_blocking=True)
        return self._planned

    def replay(self, token_ids: Tensor) -> Tensor:
        # Padding rows keep the tokens of an earlier batch: their values do not matter.
        self._token_ids[: len(token_ids)].copy_(token_ids)
        self._recording.replay()
        return self._recording.output

    def _forward(self) -> Tensor:
        return self._model.forward(self._token_ids, self._inputs, self._planned, self._kv.layers)


class DecodeGraphs:
    """`RecordedDecodes` with one recorded pass for each of several row counts."""

    @torch.inference_mode()
    def __init__(
        self,
        model: PagedModel,
        kv: KVTensors,
        *,
        sizes: Sequence[int],
        make_attention: Callable[[int], AttentionBackend],
        recorder: PassRecorder,
    ) -> None:
        """Record all sizes, the largest first, so that smaller ones reuse its memory.

        Args:
            model: the model.
            kv: its KV pages; recording writes to the scratch page.
            sizes: row counts; see `graph_sizes`.
            make_attention: `make_attention(num_rows)` returns attention for passes of that many
                rows, which stores its plans at fixed addresses.
            recorder: records the passes.
        """
        self._passes: dict[int, _DecodePass] = {}
        for num_rows in sorted(sizes, reverse=True):
            plan = _scratch_plan(num_rows, kv)
            attention = make_attention(num_rows)
            self._passes[num_rows] = _DecodePass(model, kv, attention, recorder, plan)
        self.sizes = sorted(sizes)

    def padded_rows(self, num_rows: int) -> int:
        return next((size for size in self.sizes if size >= num_rows), 0)

    @torch.inference_mode()
    def prepare(self, plan: BatchPlan) -> None:
        self._passes[plan.num_rows].prepare(plan)

    @torch.inference_mode()
    def replay(self, num_rows: int, token_ids: Tensor) -> Tensor:
        return self._passes[num_rows].replay(token_ids)


def graph_sizes(max_rows: int) -> tuple[int, ...]:
    """The row counts to record: 1, 2, 4, the multiples of 8, and `max_rows` itself.

    So a batch gets at most 7 padding rows; for large batches this is a few percent of the work.
    """
    sizes = {*_SMALLEST_SIZES, *range(_STEP, max_rows, _STEP), max_rows}
    return tuple(sorted(size for size in sizes if size <= max_rows))


def max_pages_of_rows(num_rows: int, model: PagedModel, kv: KVTensors) -> int:
    """The largest number of page ids in a batch plan.

    A page counts once for each row that uses it.
    """
    return num_rows * min(-(-model.max_positions // kv.page_size), kv.num_pages + 1)


def _scratch_plan(num_rows: int, kv: KVTensors) -> BatchPlan:
    """A plan of decode rows with one token each, all on the scratch page."""
    ones = np.ones(num_rows, dtype=np.int32)
    return plan_batch(
        page_table=np.full((num_rows, 1), kv.scratch_page, dtype=np.int32),
        query_lens=ones,
        kv_lens=ones,
        samples=np.ones(num_rows, dtype=np.int64),
        page_size=kv.page_size,
    )
