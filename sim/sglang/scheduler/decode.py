"""Decode steps: their rows, room for them, and decode rows beside a prefill.

Rules 11, 16 and 18 of docs/explanation/sglang.md (SGLang 0.5.23's update_running_batch).
"""

from collections.abc import Sequence

from sim.core.batch import ForwardMode
from sim.core.request import Status
from sim.engine.launch import leave_out_finishing
from sim.sglang.request import SglangBatch, SglangLaunch, SglangRequest
from sim.sglang.scheduler.retraction import retract
from sim.sglang.scheduler.roles.queues import Queues
from sim.sglang.scheduler.server import SglangServer
from sim.sglang.scheduler.token_ratio import NewTokenRatio


class DecodeManager:
    """Makes decode steps of the running batch.

    Attributes:
        ratio: the new-token ratio.
    """

    def __init__(self, server: SglangServer, queues: Queues) -> None:
        self._server = server
        self._config = server.config
        self._kv = server.kv
        self._steps = server.steps
        self._queues = queues
        self.ratio = NewTokenRatio(server.config)

    def next_launch(self, in_flight: SglangLaunch | None) -> SglangLaunch | None:
        """A step of the running batch; None: no row can decode now."""
        server, batch = self._server, self._server.batch
        running, turns = batch.running, batch.turns
        if batch.ended:
            batch.ended = []
            batch.is_full = False
            server.made_room = True
        if not running.requests:
            return None
        num_before = len(running.requests)
        finishing: Sequence[SglangRequest] = ()
        if server.rules.leaves_out_finishing:
            finishing = leave_out_finishing(in_flight, running)
        if not running.requests:
            batch.is_full = False
            return None
        turns.rest()
        if self._kv.can_decode(self._steps.num_new_pages(running)):
            self.ratio.decay()
        elif finishing:
            # The result in flight will free the pages of finishing requests: wait for it (rule 18).
            batch.is_full = False
            return None
        else:
            turns.gather()
            self._retract(running)
            turns.rest()
        if batch.num_running < num_before:
            batch.is_full = False
        if not running.requests:
            return None
        self._begin(running)
        self._queues.waiting.processed_tokens += batch.kept_extend_tokens
        launch = self._steps.launch(ForwardMode.DECODE, [], running.requests)
        if self._config.decode_max_requests is not None:
            launch.resting, launch.resumed = turns.resting, running.requests
        return launch

    def mix_in(self, in_flight: SglangLaunch | None) -> list[SglangRequest]:
        """The rows that decode in the same step as a prefill, if their tokens fit (rule 16)."""
        batch, kv = self._server.batch, self._kv
        running = batch.running
        batch.ended = []
        if self._server.rules.leaves_out_finishing and leave_out_finishing(in_flight, running):
            batch.is_full = False
        rows = running.requests
        if not rows or not kv.can_decode(self._steps.num_new_pages(running)):
            return []
        self._begin(running)
        kv.note_mixed(rows)
        for request in rows:
            # SGLang sets this for every row of a mixed batch. Preemption reads it if the row is
            # later put back into the queue and waits for a slot.
            request.fill_len = request.num_tokens
        return rows

    def _begin(self, running: SglangBatch) -> None:
        """Allocate the KV of a decode step of all rows."""
        self._kv.begin_decode(running.requests)
        self._steps.begin(running)

    def _retract(self, running: SglangBatch) -> None:
        server, queues = self._server, self._queues
        decision = server.decision
        retracted, aborted = retract(
            self._config,
            self._kv,
            running,
            server.release_for_later,
            self._steps.num_new_pages_of,
            queues.num_known_outputs,
            queues.keeps_kv,
        )
        self.ratio.after_retraction(
            (queues.num_known_outputs(row), row.max_new_tokens) for row in running.requests
        )
        decision.retracted = retracted
        decision.aborted += aborted
        for request in aborted:
            request.status = Status.ABORTED
        for request in retracted:
            request.retractions += 1
            queues.enter(request)
        server.note_dropped()
