"""The preallocation queue of a decode server: requests that wait for memory for their KV.

They are new, or were retracted: then host memory keeps their KV meanwhile. Source: SGLang 0.5.23,
`DecodePreallocQueue` in disaggregation/decode.py, `backup_kv_cache` and `restore_kv_cache` in
mem_cache/common.py and mem_cache/unified_radix_cache.py. docs/explanation/disaggregation.md has the
rules.
"""

from collections.abc import Collection, Sequence

from sim.core.request import Status
from sim.sglang.cache.preallocation import Reserve
from sim.sglang.config import SchedulerConfig
from sim.sglang.request import SglangRequest
from sim.sglang.scheduler.roles.transfer_queue import HostRestores
from sim.sglang.scheduler.server import SglangServer


class RetractedKV:
    """What is kept of retracted requests, in whole pages.

    Attributes:
        used_tokens: tokens of the pages that are in use.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        """Of the settings, those of host memory are read; without its size it never runs out."""
        self.used_tokens = 0
        self._capacity_tokens = config.retraction_host_tokens
        self._page_size = config.page_size
        # Of layers with a window, their window is kept, in a host pool of their own.
        self._window = config.window
        self._used_window_tokens = 0
        self._kept: dict[str, tuple[int, int]] = {}

    def keep(self, rid: str, num_tokens: int) -> bool:
        """Copy a request's KV to host memory; False: it does not fit, and is lost."""
        num_window = 0
        page_size = self._page_size
        end = -(-num_tokens // page_size) * page_size
        if self._window is not None:
            num_window = end - max(num_tokens - self._window.window, 0) // page_size * page_size
        used, used_window = self.used_tokens + end, self._used_window_tokens + num_window
        if _exceeds(used, self._capacity_tokens):
            return False
        if self._window is not None and _exceeds(used_window, self._window.retraction_host_tokens):
            return False
        self._kept[rid] = (end, num_window)
        self.used_tokens, self._used_window_tokens = used, used_window
        return True

    def drop(self, rid: str) -> None:
        """A request has its KV on the device again, or has ended."""
        num_tokens, num_window = self._kept.pop(rid)
        self.used_tokens -= num_tokens
        self._used_window_tokens -= num_window


def _exceeds(num_tokens: int, capacity_tokens: int | None) -> bool:
    return capacity_tokens is not None and num_tokens > capacity_tokens


# `req_to_metadata_buffer_idx_allocator`: places for what comes with the KV, per request slot.
_BUFFERS_PER_SLOT = 2


class PreallocationQueue:
    """New requests, and retracted ones, which come first.

    Attributes:
        requests: the new requests, in order of arrival.
        retracted: requests whose KV is in host memory, in order of their retraction.
    """

    def __init__(
        self, server: SglangServer, backups: RetractedKV, restores: HostRestores | None
    ) -> None:
        """Make the queue, empty.

        `backups` have the KV of retracted requests, `restores` what is to be loaded from host
        memory for requests that have got memory; None: there is no host memory.
        """
        config = self._config = server.config
        self._server = server
        self._kv = server.kv
        self._backups = backups
        self._restores = restores
        self.requests: list[SglangRequest] = []
        self.retracted: list[SglangRequest] = []
        reserve = Reserve(config.num_reserved_decode_tokens, config.clip_max_new_tokens)
        self._pools = server.kv.preallocations(reserve)
        self._num_slots = config.max_running_requests + config.disaggregation_decode_extra_slots
        self._num_buffers = _BUFFERS_PER_SLOT * config.max_running_requests

    # ---- requests ------------------------------------------------------------------------------

    def ever_fits(self, prompt_len: int, num_new_tokens: int) -> bool:
        """False if a request of this size would never find memory (decision record 3)."""
        return all(pool.ever_fits(prompt_len, num_new_tokens) for pool in self._pools)

    def enter(self, request: SglangRequest) -> None:
        self.requests.append(request)

    def enter_again(self, request: SglangRequest) -> None:
        """A request was retracted; it is dropped if it would never find memory again."""
        num_tokens = _num_kv_tokens(request)
        if all(pool.ever_fits_again(num_tokens) for pool in self._pools):
            self.retracted.append(request)
        else:
            self._backups.drop(request.rid)
            self._server.dropped.append(request)

    def remove_retracted(self, request: SglangRequest) -> bool:
        """Remove a retracted request that is given up; False: it is not among them."""
        if request not in self.retracted:
            return False
        self.retracted.remove(request)
        self._backups.drop(request.rid)
        return True

    def drop(self, rids: Collection[str]) -> list[SglangRequest]:
        """Remove the new requests with these names, and return them."""
        dropped = [request for request in self.requests if request.rid in rids]
        self.requests = [request for request in self.requests if request.rid not in rids]
        for request in dropped:
            self._kv.refuse_candidate(request.kv)
        return dropped

    # ---- memory --------------------------------------------------------------------------------

    def _has_place(self, num_transferring: int) -> bool:
        return self._has_slot and num_transferring < self._num_buffers

    @property
    def _has_slot(self) -> bool:
        return self._server.num_slots_used < self._num_slots

    def _fits_again(self, request: SglangRequest, num_active: int) -> bool:
        num_tokens = _num_kv_tokens(request)
        return all(pool.fits_again(num_tokens, num_active) for pool in self._pools)

    def _fits(self, request: SglangRequest, num_cached: int, num_active: int) -> bool:
        retracted = [_num_kv_tokens(each) for each in self.retracted]
        to_restore = 0 if self._restores is None else self._restores.num_to_load
        return all(
            pool.fits(request, num_cached, num_active, retracted, to_restore)
            for pool in self._pools
        )

    def _allocate(self, request: SglangRequest, num_tokens: int, prefix_len: int = 0) -> None:
        """Allocate the KV of a request's first tokens after its prefix, and a slot."""
        if request.kv.locked is None:
            self._kv.lock_prefix(request.kv)
        self._kv.allocate(request.kv, prefix_len, num_tokens - prefix_len)
        request.seq_len = request.num_computed = request.extend_end = num_tokens
        request.status = Status.RUNNING
        self._server.num_slots_used += 1

    # ---- passes --------------------------------------------------------------------------------

    def resume(self, num_active: int, agreed: Collection[str] | None = None) -> list[SglangRequest]:
        """`resume_retracted_reqs`: retracted requests that fit again, in order.

        `num_active` requests hold KV. `agreed`: with stages, those that may come back now; None:
        all may.
        """
        resumed: list[SglangRequest] = []
        for request in _among(self.retracted, agreed):
            if not (self._has_slot and self._kv.can_hold(request.kv)):
                break
            if not self._fits_again(request, num_active):
                break
            request.kv.found = None  # All of its KV comes back from host memory.
            self._allocate(request, _num_kv_tokens(request))
            self._backups.drop(request.rid)
            resumed.append(request)
            num_active += 1
        if resumed:
            self.retracted = [request for request in self.retracted if request not in resumed]
        return resumed

    def preallocate(
        self,
        rows: Sequence[SglangRequest],
        num_active: int,
        num_transferring: int,
        agreed: Collection[str] | None = None,
    ) -> list[SglangRequest]:
        """`pop_preallocated`: allocate KV of new requests, in order, as long as it fits.

        `rows` are the running requests, with those that have finished since the last step. Of the
        `num_active` requests that hold KV, that of `num_transferring` is on its way. `agreed`: with
        stages, the requests that all stages have seen; None: there is one stage.

        Returns the requests that have got memory.
        """
        if not self.requests:
            return []
        if self._config.enable_priority_scheduling:
            sign = self._config.priority_sign
            self.requests.sort(key=lambda request: sign * request.priority)
        for pool in self._pools:
            pool.begin_pass(rows)
        allocated: list[SglangRequest] = []
        for request in _among(self.requests, agreed):
            num_new = len(allocated)
            if not (self._has_place(num_transferring + num_new) and self._kv.can_hold(request.kv)):
                break
            num_cached = self._lock_prefix(request)
            if not self._fits(request, num_cached, num_active + num_new):
                self._kv.unlock_prefix(request.kv)
                break
            for pool in self._pools:
                pool.reclaim(request.prompt_len)
            prefix_len = num_cached
            if self._restores is not None:
                prefix_len = self._restores.begin(request, num_cached)
            self._allocate(request, request.prompt_len, prefix_len)
            allocated.append(request)
            self._server.partner.allocated(request.rid, prefix_len)
        if self.requests[: len(allocated)] == allocated:
            del self.requests[: len(allocated)]
        else:
            self.requests = [request for request in self.requests if request not in allocated]
        return allocated

    def _lock_prefix(self, request: SglangRequest) -> int:
        """Lock the part of the prompt that is on the device; returns its tokens."""
        kv, prompt_len = request.kv, request.prompt_len
        limit = min([pool.longest_prefix(prompt_len) for pool in self._pools])
        num_cached = self._kv.find_prefix(kv, prompt_len, limit)
        self._kv.prepare_candidate(kv)
        self._kv.lock_for_transfer(kv)
        return num_cached

    # ---- equal steps that are passed at once ---------------------------------------------------

    def stays_retracted(self, num_active: int) -> bool:
        """Whether no retracted request comes back while the same rows decode."""
        if not self._has_slot:
            return True
        num_tokens = _num_kv_tokens(self.retracted[0])
        for pool in self._pools:
            if not (pool.gives_back or pool.fits_again(num_tokens, num_active)):
                return True
        return False

    def is_stuck(
        self, rows: Sequence[SglangRequest], num_active: int, num_transferring: int
    ) -> bool:
        """Whether the queue of new requests stays as it is while the same rows decode."""
        if not self.requests:
            return True
        if self._config.disaggregation_decode_polling_interval > 1:
            return False
        if not self._has_place(num_transferring):
            return True
        if self._kv.cache.enabled or self._config.enable_priority_scheduling:
            return False
        first = self.requests[0]
        for pool in self._pools:
            pool.begin_pass(rows)
            if not pool.fits(first, 0, num_active, ()) and pool.only_shrinks(first, num_active):
                return True
        return False


def _among(requests: list[SglangRequest], rids: Collection[str] | None) -> list[SglangRequest]:
    """The requests with these names; None: all."""
    return requests if rids is None else [each for each in requests if each.rid in rids]


def _num_kv_tokens(request: SglangRequest) -> int:
    """Tokens with KV of a request that was retracted: all but the last output."""
    return request.prompt_len + max(request.num_generated - 1, 0)
