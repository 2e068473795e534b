"""Decode passes captured as CUDA graphs: one launch instead of hundreds of kernels' worth.

A graph is captured for each of a ladder of row counts; a batch runs in the smallest that takes it,
filled up with rows of one token on the scratch page. Larger batches run eagerly.

A captured pass reads its inputs and writes its logits at fixed addresses, and graphs share the
memory for what lies between, so one replay overwrites what the last one left. That is safe
because replays, the copies into the inputs before them and the sampling from the logits after them
are all enqueued on one stream: the copies for step k + 1 run when step k has run, and step k's
tokens are sampled, into memory outside the graphs, before step k + 1 is replayed. Nothing may read
logits later than that, or from another stream.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from realrun.attention.backend import AttentionBackend, StepAttention
from realrun.batch_plan import BatchPlan, plan_batch
from realrun.kv_tensors import KVTensors
from realrun.model import PagedModel
from realrun.plan_tensors import PlanTensors, pack_plan, unpack_plan

_SMALLEST_SIZES = (1, 2, 4)
_STEP = 8


class RecordedDecodes(Protocol):
    """Decode passes recorded once for some numbers of rows, and replayed with new inputs."""

    def padded_rows(self, num_rows: int) -> int:
        """Rows of the smallest recorded pass that takes `num_rows` decodes; 0 if none does."""
        ...

    def prepare(self, plan: BatchPlan) -> None:
        """Host work and copies of the inputs; the plan is padded to a recorded number of rows."""
        ...

    def replay(self, num_rows: int, token_ids: Tensor) -> Tensor:
        """Run the pass prepared last. Enqueues work, waits for nothing.

        Args:
            num_rows: its padded number of rows.
            token_ids: int64 [at most num_rows] on the device, one of each real row.

        Returns:
            Logits [num_rows, vocab_size]; overwritten by the next replay.
        """
        ...


class RecordedPass(Protocol):
    """A pass that was recorded.

    Attributes:
        output: what it returned; overwritten by each replay.
    """

    output: Tensor

    def replay(self) -> None:
        """Enqueue it again, on whatever its inputs hold then."""
        ...


class PassRecorder(Protocol):
    """Records passes; `realrun.cuda_graph.CudaPassRecorder`."""

    def record(self, work: Callable[[], Tensor]) -> RecordedPass:
        """Run work, at least once, and record what it enqueues.

        Args:
            work: it must not wait for the device, and allocates from the recorder's memory.
        """
        ...


class _DecodePass:
    """A decode pass with a fixed number of rows, and the inputs it reads."""

    def __init__(
        self,
        model: PagedModel,
        kv: KVTensors,
        attention: AttentionBackend,
        recorder: PassRecorder,
        plan: BatchPlan,
    ) -> None:
        """Record the pass with inputs of `plan`, whose number of rows it keeps."""
        self._model = model
        self._kv = kv
        self._attention = attention
        device = model.device
        self._token_ids = torch.zeros(plan.num_rows, dtype=torch.int64, device=device)
        # As PlanTensors.packed: positions, rows of K, rows of V, sampling tokens.
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
        # Rows that fill up keep the tokens of an earlier batch: any will do.
        self._token_ids[: len(token_ids)].copy_(token_ids)
        self._recording.replay()
        return self._recording.output

    def _forward(self) -> Tensor:
        return self._model.forward(self._token_ids, self._inputs, self._planned, self._kv.layers)


class DecodeGraphs:
    """Captured decode passes for a ladder of row counts: `RecordedDecodes`."""

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
        """Record all sizes, the largest first: the smaller ones fit into the memory it took.

        Args:
            model: the model.
            kv: its pages; the scratch page is written to.
            sizes: row counts, rising; see `graph_sizes`.
            make_attention: attention for passes of so many rows, whose plans go to fixed places.
            recorder: records the passes.
        """
        self._passes: dict[int, _DecodePass] = {}
        for num_rows in sorted(sizes, reverse=True):
            plan = _scratch_plan(num_rows, kv)
            attention = make_attention(num_rows)
            self._passes[num_rows] = _DecodePass(model, kv, attention, recorder, plan)
        self._sizes = sorted(sizes)

    def padded_rows(self, num_rows: int) -> int:
        """Rows of the smallest captured pass that takes `num_rows`; 0 if none does."""
        return next((size for size in self._sizes if size >= num_rows), 0)

    @torch.inference_mode()
    def prepare(self, plan: BatchPlan) -> None:
        """Plan the attention of the pass and fill its inputs. The plan is padded to its size."""
        self._passes[plan.num_rows].prepare(plan)

    @torch.inference_mode()
    def replay(self, num_rows: int, token_ids: Tensor) -> Tensor:
        """Run the pass prepared last; logits [num_rows, vocab_size], until the next replay."""
        return self._passes[num_rows].replay(token_ids)


def graph_sizes(max_rows: int) -> tuple[int, ...]:
    """The ladder: 1, 2, 4, then every 8, and `max_rows` itself.

    A step pads at most 7 rows: a few percent of the work where that is much.
    """
    sizes = {*_SMALLEST_SIZES, *range(_STEP, max_rows, _STEP), max_rows}
    return tuple(sorted(size for size in sizes if size <= max_rows))


def max_pages_of_rows(num_rows: int, model: PagedModel, kv: KVTensors) -> int:
    """Page ids of a batch at most: rows may share pages, so they may be more than there are."""
    return num_rows * min(-(-model.max_positions // kv.page_size), kv.num_pages + 1)


def _scratch_plan(num_rows: int, kv: KVTensors) -> BatchPlan:
    """Decode rows of one token each, all on the scratch page."""
    ones = np.ones(num_rows, dtype=np.int32)
    return plan_batch(
        page_table=np.full((num_rows, 1), kv.scratch_page, dtype=np.int32),
        query_lens=ones,
        kv_lens=ones,
        samples=np.ones(num_rows, dtype=np.bool_),
        page_size=kv.page_size,
    )
