"""Runs the engine's batches on a device: prepare, launch, and later take the result.

    launched = executor.launch(batch)          # only host work: waits for nothing
    output = executor.take_result(launched)    # waits for the batch's tokens
    engine.end_step(batch, output, now_ns)     # may put finished prefills into the prefix cache
    executor.note_cached_prefills(batch)

Under overlap scheduling the next `launch` comes before `take_result` of this batch.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch

from realrun.batches.batch_plan import BatchPlan
from realrun.batches.page_tables import BatchRows, PageTables
from realrun.device.streams import DeviceStream, SubmittedStep
from realrun.runner.model_runner import ModelRunner
from realrun.server.host_copies import HostCopy
from realrun.server.step_work import StepWork, step_inputs
from realrun.tokens.drafting import DraftedSteps, NgramDrafting
from realrun.tokens.outputs import Tokens
from realrun.tokens.sampling import SamplingDraws, SamplingParams, draws
from sim.core.arrays import Int64
from sim.core.batch import NEVER_STEPS, Batch, StepOutput
from sim.core.errors import InvariantError
from sim.core.tokens import TokenIds, TokenSequence
from sim.engine.core import EngineCore


@dataclass(frozen=True, slots=True, eq=False)
class LaunchedBatch:
    """A batch that was submitted to the device's stream.

    Attributes:
        batch: the batch.
        submitted: the step in the stream, with its result and its times.
        work: the step's work on the device.
        padded_rows: rows of the CUDA graph that runs it; 0 if it runs eagerly.
        max_decode_ctx: longest context of its decode rows, in tokens.
        samples: of each row, how many tokens it samples.
        copies: copies from and to CPU memory, since the batch before and in front of this one.
        plan_ns, launch_ns: host time to prepare page tables and inputs, and to enqueue the work.
    """

    batch: Batch
    submitted: SubmittedStep
    work: StepWork
    padded_rows: int
    max_decode_ctx: int
    samples: Int64
    copies: tuple[HostCopy, ...]
    plan_ns: int
    launch_ns: int


class TorchExecutor:
    """The engine's executor for a real device; with `drafting` it verifies draft tokens.

    Attributes:
        take_copies: returns the copies from and to CPU memory since its last call.
    """

    def __init__(
        self,
        runner: ModelRunner,
        stream: DeviceStream,
        tokens: Tokens,
        drafting: NgramDrafting | None = None,
        sampling_params: Mapping[str, SamplingParams] = MappingProxyType({}),
    ) -> None:
        """Make the executor.

        Args:
            runner: runs the model.
            stream: the device's stream.
            tokens: the tokens of all requests.
            drafting: the draft tokens of all requests; None: there are none.
            sampling_params: by request; the others take the most likely tokens.
        """
        self._runner = runner
        self._stream = stream
        self.tokens = tokens
        self._drafting = drafting
        self._sampling_params = sampling_params
        self._vocab_size = runner.model.shape.vocab_size
        self.take_copies: Callable[[], tuple[HostCopy, ...]] = tuple

    @property
    def drafted_steps(self) -> dict[str, DraftedSteps]:
        """By request, what its steps drafted and accepted; empty without drafts."""
        return {} if self._drafting is None else self._drafting.steps

    def attach(self, engine: EngineCore, num_slots: int) -> None:
        """Set the engine, which owns the pages. At most `num_slots` requests run at a time."""
        self._engine = engine
        self._tables = PageTables(engine, num_slots)
        if self._drafting is not None:
            self._drafting.attach(engine)
        self._last_tokens = torch.zeros(
            num_slots, dtype=torch.int64, device=self._runner.model.device
        )

    # ---- one step ------------------------------------------------------------------------------

    def launch(self, batch: Batch) -> LaunchedBatch:
        """Prepare a batch and enqueue it. Waits for nothing."""
        begin_ns = time.perf_counter_ns()
        copies = self.take_copies()
        rows = self._tables.advance(batch)
        plan = self._tables.plan(rows)
        work = self._stream.prepare(lambda: self._prepare(batch, rows, plan))
        planned_ns = time.perf_counter_ns()
        submitted = self._stream.submit(work)
        return LaunchedBatch(
            batch=batch,
            submitted=submitted,
            work=work,
            padded_rows=self._runner.padded_rows(plan),
            max_decode_ctx=int(rows.kv_lens[len(batch.prefill) :].max(initial=0)),
            samples=rows.samples,
            copies=copies,
            plan_ns=planned_ns - begin_ns,
            launch_ns=time.perf_counter_ns() - planned_ns,
        )

    def _prepare(self, batch: Batch, rows: BatchRows, plan: BatchPlan) -> StepWork:
        inputs = step_inputs(
            self._token_ids(batch, rows),
            np.repeat(rows.slots, rows.query_lens),
            np.repeat(rows.slots, rows.samples),
            self._runner.model.device,
        )
        drawn = self._draws(batch, rows) if self._sampling_params else None
        prepared = self._runner.prepare(plan)
        return StepWork(self._runner, prepared, inputs, self._last_tokens, drawn)

    def _draws(self, batch: Batch, rows: BatchRows) -> SamplingDraws | None:
        rids = [*(row.rid for row in batch.prefill), *batch.decode_rids]
        params: list[SamplingParams | None] = []
        for rid, num_samples in zip(rids, rows.samples.tolist(), strict=True):
            params += [self._sampling_params.get(rid)] * num_samples
        ends = np.repeat(rows.kv_lens - np.cumsum(rows.samples), rows.samples)
        positions = ends + np.arange(1, len(params) + 1)
        return draws(params, positions, self._runner.model.device)

    def take_result(self, launched: LaunchedBatch) -> StepOutput:
        """Wait for a batch's tokens; returns which requests they end."""
        # The stream gives results in order; a copy's has its times.
        for copy in launched.copies:
            copy.submitted.result()
        sampled = launched.submitted.result().astype(np.int64, copy=False)
        if self._drafting is None:
            return self.tokens.take(launched.batch, sampled)
        by_row = np.split(sampled, np.cumsum(launched.samples)[:-1])
        return self._drafting.take(launched.batch, by_row)

    def note_cached_prefills(self, batch: Batch) -> None:
        """Note that `end_step` put finished prefills into the prefix cache.

        Their requests may use other pages now, which they share with the cache.
        """
        for row in batch.prefill:
            if row.samples:
                self._tables.note_cached(row.rid)

    def _token_ids(self, batch: Batch, rows: BatchRows) -> Int64:
        """The new tokens of all rows, modulo the model's vocabulary; SAMPLED_LAST is kept."""
        parts = []
        for row in batch.prefill:
            request, end = self._engine.requests[row.rid], row.prefix_len + row.extend_len
            known = self._engine.scheduler.token_ids(request, min(end, request.num_tokens))
            # What stands for drafts may have any value: it is rejected.
            padding = np.zeros(end - len(known), dtype=np.int64)
            parts += [known[row.prefix_len :], padding]
        kv_lens = rows.kv_lens[len(batch.prefill) :].astype(np.int64)
        if self._drafting is not None:
            parts += self._drafting.inputs(batch)
        elif len(kv_lens):
            parts.append(self.tokens.decode_inputs(batch.decode_rids, kv_lens))
        token_ids = np.concatenate(parts)
        return np.where(token_ids < 0, token_ids, token_ids % self._vocab_size)

    # ---- the engine's Executor protocol --------------------------------------------------------

    def execute(self, batch: Batch, num_steps: int = 1) -> StepOutput:
        """Launch a batch and take its result. A real device runs one step at a time."""
        if num_steps != 1:
            raise InvariantError(f"a real device cannot run {num_steps} steps at once")
        return self.take_result(self.launch(batch))

    def steps_to_finish(self) -> int:
        """The number is unknown on a real device, and not needed without fast-forward."""
        return NEVER_STEPS

    def output_ids(self, rid: str, num_tokens: int) -> TokenIds:
        return self.tokens.output_ids(rid, num_tokens)

    def output_part(self, rid: str, start: int, stop: int) -> TokenSequence:
        return self.output_ids(rid, stop)[start:]

    def forget(self, rid: str) -> None:
        self.tokens.forget(rid)
        if self._drafting is not None:
            self._drafting.forget(rid)
        self._tables.leave(rid)
