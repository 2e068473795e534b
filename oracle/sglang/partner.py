"""The server at the other end of a transfer, as a case's script; needs SGLang's environment.

It stands in for SGLang's transfer backends: a sender for each request of a prefill server, a
receiver for each request of a decode server. `poll` answers by virtual time.

Keys of a workload row's `partner`, in seconds:
    ready_after: from the arrival to the end of the handshake. On a prefill server: until the decode
        server has made room.
    cached: prompt tokens that the decode server has in its own cache; a prefill server need not
        send them.
    transfer: from the last part that is sent (on a decode server: from the room made) to the end of
        the transfer.
    fails_after: from the arrival to a failure. It has no effect after the end of the transfer.
"""

import heapq
from types import SimpleNamespace
from typing import Any

_HOST = "prefill"


class Partner:
    """All requests' scripts, and when something happens at the other end."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.rows: dict[int, dict[str, Any]] = {}
        # What each request's sender has sent: time, tokens from the prompt's start, whether last.
        self.sent: dict[int, list[list[Any]]] = {}
        # When room was made for a request, and its tokens found in the decode server's cache.
        self.room: dict[int, list[Any]] = {}
        self.first_token: Any = None
        self.metadata: Any = None
        # With stages: when the last stage has computed what a request may send.
        self.computed_s: dict[int, float] = {}
        self._times: list[float] = []
        self.kv_args = SimpleNamespace(state_types=[])
        self.prefill_info_table = {f"{_HOST}:1": SimpleNamespace(dp_size=1)}
        self.enable_deferred_decode_kv_release = False

    def knows(self, request: Any, row: dict[str, Any], room: int) -> Any:
        """Give a request its script, and a number that both ends know it by."""
        request.bootstrap_host, request.bootstrap_port = _HOST, 1
        request.bootstrap_room = room
        self.rows[room] = {"arrival": row["arrival"], **row["partner"]}
        for after in ("ready_after", "fails_after"):
            if self.rows[room].get(after):
                self.happens_at(row["arrival"] + self.rows[room][after])
        return request

    def happens_at(self, time_s: float) -> float:
        time_s = round(time_s, 9)
        heapq.heappush(self._times, time_s)
        return time_s

    def next_after(self, now_s: float) -> float | None:
        while self._times and self._times[0] <= now_s:
            heapq.heappop(self._times)
        return self._times[0] if self._times else None


class End:
    """What sender and receiver have in common."""

    def __init__(self, mgr: Partner, bootstrap_addr: str, bootstrap_room: int, **_: Any) -> None:
        from sglang.srt.disaggregation.base import KVPoll

        self.states = KVPoll
        self.kv_mgr, self.room = mgr, bootstrap_room
        self.row = mgr.rows[bootstrap_room]
        self.conclude_state: int | None = None
        self.require_staging = self.abort_notified = False
        self._ready_s = round(self.row["arrival"] + (self.row.get("ready_after") or 0), 9)
        fails_after = self.row.get("fails_after")
        self._fails_s = None if fails_after is None else round(self.row["arrival"] + fails_after, 9)
        self._done_s: float | None = None

    def begin_transfer(self) -> None:
        self._done_s = self.kv_mgr.happens_at(self.kv_mgr.clock.now_s + self.row["transfer"])

    def poll(self) -> int:
        now_s = round(self.kv_mgr.clock.now_s, 9)
        if self.conclude_state is not None:
            return self.conclude_state
        fails_s, done_s = self._fails_s, self._done_s
        if fails_s is not None and fails_s <= now_s and (done_s is None or fails_s < done_s):
            self.conclude_state = self.states.Failed
        elif done_s is not None and done_s <= now_s:
            self.conclude_state = self.states.Success
            self.arrived()
        elif self._ready_s > now_s:
            return int(self.states.Bootstrapping)
        elif done_s is None:
            return int(self.states.WaitingForInput)
        else:
            return int(self.states.Transferring)
        return int(self.conclude_state)

    def poll_pp_consensus(self) -> int:
        """All stages see the same."""
        return self.poll()

    def arrived(self) -> None:
        """Called once, when the transfer has ended."""

    def abort(self) -> None:
        self.conclude_state = self.states.Failed

    def failure_exception(self) -> None:
        raise RuntimeError("the case's script")

    def clear(self) -> None:
        """Nothing is held."""


class Sender(End):
    """One request's end on a prefill server. Pages are counted as `CommonKVSender` does.

    What is in the cache is sent when its batch is launched. Under overlap, SGLang then waits for
    the step that is running: it may still write these pages.
    """

    _early_send_wait_event: Any = None

    def pop_decode_prefix_len(self) -> int:
        return int(self.row.get("cached") or 0)

    def init(self, num_pages: int, _metadata_index: int) -> None:
        self._num_pages, self._num_sent = num_pages, 0
        self._num_tokens = self.pop_decode_prefix_len()

    def get_max_transfer_tokens(self) -> None:
        return None

    def get_transfer_metric(self) -> Any:
        from sglang.srt.disaggregation.base.conn import KVTransferMetric

        return KVTransferMetric()

    def should_send_kv_chunk(self, num_pages: int, last_chunk: bool) -> bool:
        return num_pages > 0 or last_chunk

    def send(self, page_indices: Any, _state_indices: Any = None, *, num_kv_tokens: int) -> None:
        self._num_sent += len(page_indices)
        self._num_tokens += num_kv_tokens
        is_last = self._num_sent == self._num_pages
        event, self._early_send_wait_event = self._early_send_wait_event, None
        from_s = max(self.kv_mgr.clock.now_s, event.time_s if event is not None else 0.0)
        from_s = max(from_s, self.kv_mgr.computed_s.get(self.room, 0.0))
        self.kv_mgr.sent.setdefault(self.room, []).append([from_s, self._num_tokens, is_last])
        if is_last:
            self.begin_transfer()


class Receiver(End):
    """One request's end on a decode server. The first token comes with the KV."""

    def init(self, _prefill_dp_rank: int) -> None:
        """The handshake's end is in the script."""

    def send_metadata(
        self, _pages: Any, index: int, _state_indices: Any = None, *, decode_prefix_len: int
    ) -> None:
        self._index = index
        self.kv_mgr.room[self.room] = [self.kv_mgr.clock.now_s, decode_prefix_len]
        self.begin_transfer()

    def arrived(self) -> None:
        buffers = self.kv_mgr.metadata
        buffers.bootstrap_room[self._index, 0] = self.room
        buffers.output_ids[self._index, 0] = self.kv_mgr.first_token(self.room)
