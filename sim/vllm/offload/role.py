"""When a server learns that copies between the GPU and CPU memory have ended."""

from sim.engine.records import Decided, RequestRecord
from sim.vllm.offload.connector import OffloadConnector
from sim.vllm.offload.copies import Copies, Job
from sim.vllm.pulling import Polling, Polls


class Offload(Polling[Job]):
    """Of a server with KV in CPU memory.

    A server without requests goes on deciding until all copies have ended, those to and from the
    tier below CPU memory included (`has_pending_push_work`, v1/core/sched/scheduler.py).

    Attributes:
        connector: what the scheduler does.
        copies: when copies begin and end.
    """

    def __init__(self, polls: Polls[Job], connector: OffloadConnector, copies: Copies) -> None:
        super().__init__(polls)
        self.polls_at_steps = self.waits_without_step = True
        self.connector = connector
        self.copies = copies
        # When the steps that were launched end.
        self._device_free_ns = 0
        self._asks = False

    def begin_step(self, now_ns: int) -> Decided:
        self.connector.host.begin_decision(now_ns)
        return super().begin_step(now_ns)

    def step_ends(self, end_ns: int) -> None:
        self._device_free_ns = end_ns

    @property
    def wakes_ns(self) -> int | None:
        copied_ns, tier = self.copies.next_ns, self.connector.host.tier
        if tier is None or not (self.engine.requests or self.connector.has_jobs):
            return copied_ns
        times_ns = [each for each in (copied_ns, tier.next_ns()) if each is not None]
        return min(times_ns, default=None)

    @property
    def _looks(self) -> bool:
        return self._asks

    @property
    def _has_work(self) -> bool:
        return self.copies.has_unsubmitted or self.connector.has_ended

    def _work(self, now_ns: int, *, launches: bool) -> int:
        connector, copies = self.connector, self.copies
        tier = connector.host.tier
        if tier is not None:
            tier.end_decision(now_ns)
        self._asks = bool(self.engine.requests) or connector.has_jobs
        device_free_ns = self._device_free_ns
        copies.step_ended(device_free_ns)
        copied = connector.take_copied()
        begins_ns = copies.begin(
            copied.stores, copied.loads, copied.awaited, now_ns, device_free_ns
        )
        if not launches:
            copies.step_ended(max(begins_ns, device_free_ns))
        for job in copies.ended(begins_ns):
            self._polls.note(job)
        return begins_ns - now_ns

    def _act(self, seen: list[Job], now_ns: int) -> list[RequestRecord]:
        tier = self.connector.host.tier
        if tier is not None:
            tier.now_ns = now_ns
        for job in seen:
            self.connector.copy_ended(job)
        for job in seen:
            if not (job.is_store or job.is_sync):
                self.scheduler.transfer_ended(job.request.rid, is_lost=False)
        return []
