"""What the workers of a server with KV in CPU memory do in its steps."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from sim.core.errors import InputError
from sim.engine.request import Request
from sim.vllm.offload.copies import Copies, CopyJob, StoreReports
from sim.vllm.offload.copying import CopyingConnector
from sim.vllm.version_rules import VllmRules

# The run ends with an error if more decisions in a row than these let chunks be read, while no step
# is launched and no copy ends.
_MOST_READS: Final = 1_000


class Offload:
    """Copies between the GPU and CPU memory, and below it, beside the steps of a server.

    Attributes:
        connector: what the scheduler does.
        copies: when copies begin and end.
        goes_on: a server without requests decides all the same. At the latest decision, copies had
            not ended, as far as the scheduler knew; before version 0.33.0: requests have ended
            since the decision before, and it decides once more.
    """

    def __init__(self, connector: CopyingConnector, copies: Copies, rules: VllmRules) -> None:
        self.connector = connector
        self.copies = copies
        self.goes_on = False
        self._reports = None if rules.ends_stores_by_copy else StoreReports()
        # The latest decision has let chunks be read from below, and others may have left for them.
        self._has_read = False
        # Such decisions in a row, while no step was launched and no copy has ended.
        self._num_reads = 0
        # The server has requests, or copies that have not ended.
        self._has_turn = False
        # Copies that have ended, of requests that are still being sent.
        self._untold: list[CopyJob] = []
        # When the steps that were launched end.
        self._device_free_ns = 0

    def begin_decision(self, now_ns: int, *, has_requests: bool) -> None:
        self.connector.begin_decision(now_ns, has_requests=has_requests)

    def step_ends(self, end_ns: int) -> None:
        self._device_free_ns = end_ns

    @property
    def has_work(self) -> bool:
        """The next step, or one that launches nothing, has something to do, or finds a change.

        A server that launches nothing decides all the time. So a prompt for which CPU memory has no
        room finds out at once, and is computed, and its chunks do not push each other out for ever.
        """
        has_more = self._has_turn and self.connector.has_more
        return self.copies.has_unsubmitted or self.connector.has_ended or self._has_read or has_more

    def next_ns(self, *, has_requests: bool) -> int | None:
        """When something may have ended that a server looks at although it launches nothing."""
        if self._reports is not None and not has_requests:
            return None
        copied_ns, below = self.copies.next_ns, self.connector.below
        if below is None or not (has_requests or self.connector.has_jobs):
            return copied_ns
        times_ns = [each for each in (copied_ns, below.next_ns()) if each is not None]
        return min(times_ns, default=None)

    def work(
        self, now_ns: int, requests: Mapping[str, Request], *, launches: bool
    ) -> tuple[int, list[CopyJob]]:
        """The workers get a step; returns how long it waits for them, and the copies that ended.

        Raises InputError: `requests`, those of the server, wait for ever.
        """
        connector, copies = self.connector, self.copies
        below = connector.below
        self._has_read = below is not None and below.end_decision(now_ns)
        device_free_ns = self._device_free_ns
        copies.step_ended(device_free_ns)
        copied = connector.take_copied()
        begins_ns = copies.begin(
            copied.stores, copied.loads, copied.awaited, now_ns, device_free_ns
        )
        if not launches:
            copies.step_ended(max(begins_ns, device_free_ns))
        ended = copies.ended(begins_ns)
        self._num_reads = 0 if launches or ended else self._num_reads + self._has_read
        if self._num_reads > _MOST_READS:
            _raise_if_endless(requests)
        if self._reports is None:
            self.goes_on = connector.has_jobs
        else:
            self._reports.decided(copied.stores)
            ended = self._reports.told(ended, copied.over, begins_ns)
            self.goes_on = bool(copied.over)
        self._has_turn = self.goes_on or bool(requests)
        return begins_ns - now_ns, ended

    def ended(self, jobs: list[CopyJob], now_ns: int, sending: AbstractSet[str]) -> list[str]:
        """The scheduler learns that copies have ended; returns the requests that wait for that.

        `sending`: requests whose KV has yet to leave to a decode server. Before version 0.33.0 it
        learns of their copies together with that (0.19.0: `get_finished` of distributed/
        kv_transfer/kv_connector/v1/multi_connector.py).
        """
        if self._reports is not None:
            jobs = [*self._untold, *jobs]
            self._untold = [job for job in jobs if job.is_store and job.rid in sending]
            jobs = [job for job in jobs if job not in self._untold]
        below = self.connector.below
        if below is not None:
            below.time_is(now_ns)
        return [job.rid for job in jobs if self.connector.copy_ended(job)]


def _raise_if_endless(requests: Mapping[str, Request]) -> None:
    """Chunks of a prompt push each other out of CPU memory again and again.

    A server that decides only once in a while has read some chunks when it looks again, and begins
    to read those that have left for them. That ends if a client gives up.
    """
    if all(request.spec.gives_up_ns is None for request in requests.values()):
        raise InputError(
            "CPU memory has no room for all chunks of a waiting prompt: vLLM reads them from the"
            " tier below for ever, and they push each other out",
            key=("scheduler", "kv_offloading"),
        )
