"""Runs the engine's batches on a device: prepare, launch, and later take the result.

    flight = executor.launch(batch)     # the host's work; the device may still be busy before it
    output = executor.land(flight)      # wait for its tokens
    engine.end_step(batch, output, now_ns)
    executor.settle(batch)              # the engine has given finished prefills to its cache

Under overlap scheduling the next launch comes before this flight's landing.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch

from realrun.batch_plan import BatchPlan, Int64s
from realrun.page_tables import BatchRows, PageTables
from realrun.runner import ModelRunner
from realrun.step_work import StepWork, step_inputs
from realrun.streams import DeviceStream, Ticket
from realrun.tokens import Tokens
from sim.core.batch import Batch, StepOutput
from sim.core.errors import InvariantError
from sim.core.token_sequences import TokenSequence
from sim.core.tokens import TokenIds
from sim.engine.core import EngineCore
from sim.engine.scripted import NEVER_STEPS


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """A launch on its way.

    Attributes:
        batch: what was launched.
        ticket: its place in the device's queue; knows when the device worked on it.
        work: what it does there.
        padded_rows: rows of the recorded pass it runs through, 0 if eager.
        max_decode_ctx: longest context among the decode rows.
        plan_ns, launch_ns: host time to prepare tables and inputs, and to enqueue the work.
    """

    batch: Batch
    ticket: Ticket
    work: StepWork
    padded_rows: int
    max_decode_ctx: int
    plan_ns: int
    launch_ns: int


class TorchExecutor:
    """The engine's executor on a real device."""

    def __init__(self, runner: ModelRunner, stream: DeviceStream, tokens: Tokens) -> None:
        self._runner = runner
        self._stream = stream
        self.tokens = tokens
        self._vocab_size = runner.model.shape.vocab_size

    def attach(self, engine: EngineCore, num_slots: int) -> None:
        """Take the engine whose pages hold the KV; at most `num_slots` requests run at a time."""
        self._engine = engine
        self._tables = PageTables(engine, num_slots)
        self._last_tokens = torch.zeros(
            num_slots, dtype=torch.int64, device=self._runner.model.device
        )

    # ---- one step ------------------------------------------------------------------------------

    def launch(self, batch: Batch) -> Flight:
        """Prepare a batch and enqueue it. Waits for nothing."""
        begin_ns = time.perf_counter_ns()
        rows = self._tables.advance(batch)
        plan = self._tables.plan(rows)
        work = self._stream.prepare(lambda: self._prepare(batch, rows, plan))
        planned_ns = time.perf_counter_ns()
        ticket = self._stream.submit(work)
        return Flight(
            batch=batch,
            ticket=ticket,
            work=work,
            padded_rows=self._runner.padded_rows(plan),
            max_decode_ctx=int(rows.kv_lens[len(batch.prefill) :].max(initial=0)),
            plan_ns=planned_ns - begin_ns,
            launch_ns=time.perf_counter_ns() - planned_ns,
        )

    def _prepare(self, batch: Batch, rows: BatchRows, plan: BatchPlan) -> StepWork:
        inputs = step_inputs(
            self._token_ids(batch, rows),
            np.repeat(rows.slots, rows.query_lens),
            rows.slots[rows.samples],
            self._runner.model.device,
        )
        return StepWork(self._runner, self._runner.prepare(plan), inputs, self._last_tokens)

    def land(self, flight: Flight) -> StepOutput:
        """Wait for a launch's tokens and take them in."""
        sampled = flight.ticket.result().astype(np.int64, copy=False)
        return self.tokens.take(flight.batch, sampled)

    def settle(self, batch: Batch) -> None:
        """The engine has taken in the batch's result."""
        for row in batch.prefill:
            if row.samples:
                self._tables.cached(row.rid)

    def _token_ids(self, batch: Batch, rows: BatchRows) -> Int64s:
        """The new tokens of all rows, as the model's vocabulary has them."""
        parts = []
        for row in batch.prefill:
            request, end = self._engine.requests[row.rid], row.prefix_len + row.extend_len
            parts.append(self._engine.scheduler.token_ids(request, end)[row.prefix_len :])
        kv_lens = rows.kv_lens[len(batch.prefill) :].astype(np.int64)
        if len(kv_lens):
            parts.append(self.tokens.decode_inputs(batch.decode_rids, kv_lens))
        token_ids = np.concatenate(parts)
        return np.where(token_ids < 0, token_ids, token_ids % self._vocab_size)

    # ---- what the engine asks ------------------------------------------------------------------

    def execute(self, batch: Batch, num_steps: int = 1) -> StepOutput:
        """Launch and land. A real device takes one step at a time."""
        if num_steps != 1:
            raise InvariantError(f"{num_steps} steps were asked for at once")
        return self.land(self.launch(batch))

    def steps_to_finish(self) -> int:
        """Nobody looks ahead on a real device."""
        return NEVER_STEPS

    def output_ids(self, rid: str, num_tokens: int) -> TokenIds:
        return self.tokens.output_ids(rid, num_tokens)

    def output_part(self, rid: str, start: int, stop: int) -> TokenSequence:
        return self.output_ids(rid, stop)[start:]

    def forget(self, rid: str) -> None:
        self.tokens.forget(rid)
        self._tables.leave(rid)
