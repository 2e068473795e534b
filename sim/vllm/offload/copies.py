"""When copies between the GPU and CPU memory begin and end.

Each direction makes one copy at a time, in order. A copy waits for the steps that were launched
before it. Copies to CPU memory are given to the GPU at the beginning of the next step, copies from
there right after the step that was decided with them. Before version 0.33.0 copies from there begin
with that step, and wait for no step.

vLLM 0.33.0: `OffloadingConnectorWorker` (distributed/kv_transfer/kv_connector/v1/offloading/
worker.py); `transfer_async` and `get_finished` of v1/kv_offload/cpu/gpu_worker.py; `pre_forward`
and `post_forward` of v1/worker/gpu/kv_connector.py.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence

from sim.core.errors import InvariantError
from sim.vllm.offload.policies import ChunkKey
from sim.vllm.request import VllmRequest
from sim.vllm.version_rules import VllmRules


class CopyJob:
    """The copies of some chunks of a request.

    Attributes:
        rid: the request's.
        keys: the chunks.
        blocks: the blocks on the GPU.
        held: those of them that stay the request's until it ends.
        is_store: the copy is to CPU memory.
        is_sync: the step that was decided with the copy waits for it.
        end_ns: when it ends; 0: it has not been given to the GPU.
    """

    def __init__(
        self,
        request: VllmRequest | None,
        keys: Sequence[ChunkKey],
        blocks: Sequence[int],
        *,
        is_store: bool,
    ) -> None:
        """`request`: whose chunks they are; None: several requests'."""
        self.rid = "" if request is None else request.rid
        self._request = request
        self.keys = keys
        self.blocks = blocks
        self.held: list[int] = []
        self.is_sync = False
        self.is_store = is_store
        self.end_ns = 0

    @property
    def request(self) -> VllmRequest:
        """The request.

        Raises InvariantError: the chunks are those of several.
        """
        if self._request is None:
            raise InvariantError("a copy for several requests was asked for its request")
        return self._request


class Link:
    """Copies in one direction, one at a time.

    Attributes:
        copies: makes the copies of a real server, in the order in which they begin; None: they only
            take their time.
    """

    def __init__(self, ns_per_block: float) -> None:
        self.copies: Callable[[CopyJob], None] | None = None
        self._ns_per_block = ns_per_block
        self._jobs: deque[CopyJob] = deque()
        self._free_ns = 0

    def submit(self, jobs: Sequence[CopyJob], after_ns: int) -> None:
        """Copy after this time, and after the copies before."""
        for job in jobs:
            begin_ns = max(after_ns, self._free_ns)
            job.end_ns = self._free_ns = begin_ns + round(len(job.blocks) * self._ns_per_block)
            self._jobs.append(job)
            if self.copies is not None:
                self.copies(job)

    def ended(self, now_ns: int) -> list[CopyJob]:
        """The copies that have ended until now; each is returned once."""
        ended: list[CopyJob] = []
        while self._jobs and self._jobs[0].end_ns <= now_ns:
            ended.append(self._jobs.popleft())
        return ended

    @property
    def next_ns(self) -> int | None:
        """When the next copy ends."""
        return self._jobs[0].end_ns if self._jobs else None


class Copies:
    """The copies of one server, as the worker of its connector makes them."""

    def __init__(self, *links: Link) -> None:
        """`links`: in the order in which the worker looks at them."""
        self._links = links

    def made_by(self, copies: Callable[[CopyJob], None]) -> None:
        """From now on this makes the copies."""
        for link in self._links:
            link.copies = copies

    def ended(self, now_ns: int) -> list[CopyJob]:
        """The copies that have ended until now; each is returned once."""
        return [job for link in self._links for job in link.ended(now_ns)]

    @property
    def next_ns(self) -> int | None:
        """When the next copy ends."""
        ends = [link.next_ns for link in self._links]
        return min([end_ns for end_ns in ends if end_ns is not None], default=None)

    @property
    def has_unsubmitted(self) -> bool:
        """Some copies wait for the next step, or one without work."""
        raise NotImplementedError

    def step_ended(self, device_free_ns: int) -> None:
        """The steps that were launched before end then: copies that wait for them begin."""
        raise NotImplementedError

    def begin(
        self,
        stores: Sequence[CopyJob],
        loads: Sequence[CopyJob],
        awaited: Collection[CopyJob],
        now_ns: int,
        device_free_ns: int,
    ) -> int:
        """A step begins, or one without work; returns when the worker launches it.

        Args:
            stores: copies to CPU memory that were decided with it.
            loads: copies from there.
            awaited: copies for which it waits.
            now_ns: the time.
            device_free_ns: when the steps launched so far end.
        """
        raise NotImplementedError


class QueuedCopies(Copies):
    """Of `OffloadingConnector`."""

    def __init__(self, ns_per_block: float, rules: VllmRules | None = None) -> None:
        """`rules`: those of the version; None: of the newest."""
        self._loads_behind_steps = rules is None or rules.loads_behind_steps
        self._stores, self._loads = Link(ns_per_block), Link(ns_per_block)
        # They do not wait for other loads.
        self._sync_loads = Link(ns_per_block)
        super().__init__(self._stores, self._loads, self._sync_loads)
        # Decided, but not given to the GPU yet.
        self._next_stores: list[CopyJob] = []
        self._next_loads: list[CopyJob] = []

    def step_ended(self, device_free_ns: int) -> None:
        self._loads.submit(self._next_loads, device_free_ns)
        self._next_loads = []

    def begin(
        self,
        stores: Sequence[CopyJob],
        loads: Sequence[CopyJob],
        awaited: Collection[CopyJob],
        now_ns: int,
        device_free_ns: int,
    ) -> int:
        after_ns = max(now_ns, device_free_ns)
        at_once = [job for job in stores if job in awaited]
        self._stores.submit([*self._next_stores, *at_once], after_ns)
        self._next_stores = [job for job in stores if job not in awaited]
        begins_ns = max(now_ns, max([job.end_ns for job in awaited], default=0))
        if not self._loads_behind_steps:
            self._loads.submit(loads, begins_ns)
            return begins_ns
        waited_for = [job for job in loads if job.is_sync]
        if not waited_for:
            self._next_loads += loads
            return begins_ns
        # All loads are given to the GPU before the step.
        after_ns = max(begins_ns, device_free_ns)
        self._loads.submit([job for job in loads if not job.is_sync], after_ns)
        self._sync_loads.submit(waited_for, after_ns)
        return waited_for[-1].end_ns

    @property
    def has_unsubmitted(self) -> bool:
        return bool(self._next_stores or self._next_loads)


class SimpleCopies(Copies):
    """Of `SimpleCPUOffloadConnector`: a load begins with its step, a store when its step has ended.

    The loads that one decision begins are one copy. vLLM 0.33.0: `SimpleCPUOffloadWorker`
    (v1/simple_kv_offload/worker.py).
    """

    def __init__(self, ns_per_block: float) -> None:
        self._stores, self._loads = Link(ns_per_block), Link(ns_per_block)
        super().__init__(self._loads, self._stores)
        self._next_stores: list[CopyJob] = []

    def step_ended(self, device_free_ns: int) -> None:
        self._stores.submit(self._next_stores, device_free_ns)
        self._next_stores = []

    def begin(
        self,
        stores: Sequence[CopyJob],
        loads: Sequence[CopyJob],
        awaited: Collection[CopyJob],
        now_ns: int,
        device_free_ns: int,
    ) -> int:
        begins_ns = max(now_ns, max([job.end_ns for job in awaited], default=0))
        self._loads.submit(loads, begins_ns)
        for job in loads:
            job.end_ns = loads[-1].end_ns
        self._next_stores += stores
        return begins_ns

    @property
    def has_unsubmitted(self) -> bool:
        return bool(self._next_stores)


class StoreReports:
    """When workers tell of copies to CPU memory before version 0.33.0.

    They tell that all copies of a request have ended, and only when the request has ended, too
    (0.19.0: `get_finished` of distributed/kv_transfer/kv_connector/v1/offloading/worker.py).
    """

    def __init__(self) -> None:
        self._untold: dict[VllmRequest, list[CopyJob]] = {}
        # Requests that have ended, of which some copy had not.
        self._over: set[VllmRequest] = set()

    def decided(self, stores: Sequence[CopyJob]) -> None:
        """A decision copies chunks to CPU memory."""
        for job in stores:
            self._untold.setdefault(job.request, []).append(job)

    def told(
        self, ended: Sequence[CopyJob], over: Sequence[VllmRequest], now_ns: int
    ) -> list[CopyJob]:
        """What workers tell at this time.

        Args:
            ended: copies that have ended since they looked before.
            over: requests that have ended before the latest decision, and not before that.
            now_ns: the time.
        """
        told = [job for job in ended if not job.is_store]
        asked = [job.request for job in ended if job.is_store and job.request in self._over]
        self._over.update([request for request in over if request in self._untold])
        for request in (*asked, *over):
            jobs = self._untold.get(request, ())
            if jobs and all(0 < job.end_ns <= now_ns for job in jobs):
                told += jobs
                del self._untold[request]
                self._over.remove(request)
        return told
