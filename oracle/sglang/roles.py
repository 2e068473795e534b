"""What a server does beside its own steps: nothing, or what a prefill or a decode server does.

SGLang's own classes hold the queues and decide. `partner` stands in for the other server and the
transfers. An idle server makes passes until one has looked at all transfers and changed nothing;
then it waits for what happens next.
"""

from typing import Any

from sglang.srt.managers.schedule_batch import FINISH_ABORT
from sglang.srt.managers.schedule_policy import WAITING_PREFIX_REFRESH_INTERVAL

from oracle.sglang.disaggregation import ForwardEnd, add_disaggregation

Row = dict[str, Any]


def role_of(driver: Any) -> "Both":
    kinds = {"null": Both, "prefill": Prefill, "decode": Decode}
    return kinds[driver.cfg["disaggregation_mode"]](driver)


class Both:
    """A server that prefills and decodes."""

    name = ""

    def __init__(self, driver: Any) -> None:
        self.driver, self.s = driver, driver.s

    def knows(self, number: int, row: Row, request: Any) -> None:
        """A request has arrived, before the scheduler sees it."""

    def take_in(self) -> None:
        """What a pass does before its decision."""

    def launches(self, batch: Any) -> None:
        """What a pass does before its step runs."""

    def forward_ends(self, end_s: float, batch: Any = None) -> None:
        """When the step before ends, under overlap; or that before `batch`, and then `batch`."""

    def end_pass(self) -> None:
        """What a pass does after the result of a step."""

    def is_settled(self) -> bool:
        """Whether the passes of an idle server change nothing any more."""
        return True

    def events(self, now_s: float) -> list[float]:
        """When something happens that such a server waits for."""
        return []

    def fields(self) -> dict[str, int]:
        """What a step's row says of the role's own queues."""
        return {}

    def num_rows(self) -> int:
        """Rows of requests that an idle server has free."""
        return int(self.s.req_to_token_pool.size)

    def end(self) -> None:
        """The run has ended."""


class Disaggregated(Both):
    """What prefill servers and decode servers have in common."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self.name = driver.cfg["disaggregation_mode"]
        self.partner = add_disaggregation(self.s, driver.cfg, driver.clock, self._note_output)
        self.partner.first_token = self._first_token
        self._rids: dict[int, str] = {}
        self._num_outputs = 0
        self._seen: Any = None
        # Passes in a row that have changed nothing; and how many of them show that none will: with
        # stages, what is seen acts one round later.
        self._num_equal, self._most_equal = 0, 1
        if driver.cfg["stages"] > 1:
            self._most_equal = 2 * driver.cfg["stages"]

    def knows(self, number: int, row: Row, request: Any) -> None:
        self._rids[number + 1] = request.rid
        self.partner.knows(request, row, number + 1)

    def _first_token(self, room: int) -> int:
        request = self.driver.live[self._rids[room]]
        return int(self.driver.model.sample(request, len(request.origin_input_ids)))

    def _note_output(self, requests: list[Any], *_: Any) -> None:
        """SGLang sends what these requests have so far to their clients."""
        now_s = self.driver.clock.now_s
        for request in requests:
            self._num_outputs += 1
            info = self.driver.info[request.rid]
            if request.output_ids and info["ttft"] is None:
                info["ttft"] = round(now_s - info["arrival"], 9)
            if not request.finished() or info["status"] != "live":
                continue
            reason = request.finished_reason
            info |= {"reason": type(reason).__name__, "output_tokens": len(request.output_ids)}
            self.driver.live.pop(request.rid, None)
            if isinstance(reason, FINISH_ABORT):
                info["status"] = "rejected" if reason.status_code == 400 else "failed"
            else:
                info |= {"status": "finished", "finish": round(now_s, 9)}

    def launches(self, batch: Any) -> None:
        self._seen = None

    def is_settled(self) -> bool:
        server = self.s
        state = (
            self.fields(), len(server.waiting_queue), len(server.running_batch.reqs),
            [pool.counts() for pool in self.driver.pools], self._num_outputs,
            server.req_to_token_pool.available_size(), server.chunked_req is None,
            len(self.driver.live), self._restores(),
        )  # fmt: skip
        seen, self._seen = self._seen, state
        self._num_equal = self._num_equal + 1 if state == seen else 0
        if self._num_equal < self._most_equal or not self._looks():
            return False
        self._seen = None
        return True

    def _restores(self) -> list[tuple[int, Any]]:
        """How far the loads from host memory are that transfers wait for."""
        return []

    def _looks(self) -> bool:
        """Whether the last pass has looked at all transfers."""
        return True

    def events(self, now_s: float) -> list[float]:
        next_s = self.partner.next_after(now_s)
        times = [] if next_s is None else [next_s]
        return times + [time_s for time_s, _, _ in self.driver.impatient[:1]]

    def end(self) -> None:
        for room, rid in self._rids.items():
            self.driver.info[rid]["sent"] = self.partner.sent.get(room, [])
            self.driver.info[rid]["room"] = self.partner.room.get(room)


class Prefill(Disaggregated):
    """A prefill server."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self.s.get_next_batch_to_run = self.s.get_next_disagg_prefill_batch_to_run
        self._num_refreshes = 0

    def take_in(self) -> None:
        self.s.waiting_queue.extend(self.s.disagg_prefill_bootstrap_queue.pop_bootstrapped())

    def forward_ends(self, end_s: float, batch: Any = None) -> None:
        """With stages, nothing is sent before the last stage has computed it."""
        ForwardEnd.forward_free_s = end_s
        for request in batch.reqs if batch is not None else ():
            self.partner.computed_s[request.bootstrap_room] = end_s

    def launches(self, batch: Any) -> None:
        """As `Scheduler.run_batch`: a part that the step may still load is not sent early."""
        super().launches(batch)
        is_loading = batch.hicache_consumer_index >= 0
        for request in batch.reqs:
            self.s.maybe_send_cached_prefix_chunk(request, allow_send=not is_loading)

    def end_pass(self) -> None:
        self.s.process_disagg_prefill_inflight_queue()

    def _looks(self) -> bool:
        """An idle server soon makes the pass that marks prefixes of waiting requests as used."""
        num_before = self._num_refreshes
        self._num_refreshes = int(self.s.policy._waiting_prefix_refresh_calls)
        is_refreshed = self._num_refreshes % WAITING_PREFIX_REFRESH_INTERVAL == 1
        return is_refreshed or self._num_refreshes == num_before

    def fields(self) -> dict[str, int]:
        return {
            "bootstrapping": len(self.s.disagg_prefill_bootstrap_queue.queue),
            "inflight": len(self.s.disagg_prefill_inflight_queue),
        }


class Decode(Disaggregated):
    """A decode server."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        decide = self.s.get_next_disagg_decode_batch_to_run
        self.s.get_next_batch_to_run = lambda running_batch, **_: decide(running_batch)

    def take_in(self) -> None:
        queue = self.s.disagg_decode_prealloc_queue
        before = {request.rid for request in self.s.waiting_queue}
        retracted = {request.rid for request in queue.retracted_queue}
        self.s.process_decode_queue()
        for request in self.s.waiting_queue:
            if request.rid not in before:
                name = "resumed" if request.rid in retracted else "received"
                times = self.driver.info[request.rid].setdefault(name, [])
                times.append(self.driver.clock.now_s)

    def _restores(self) -> list[tuple[int, Any]]:
        """A load that has begun counts no longer against the memory for other requests."""
        return [
            (each.hicache_load_consumer_index, each.hicache_restore_status)
            for each in self.s.disagg_decode_transfer_queue.queue
        ]

    def _looks(self) -> bool:
        is_full = bool(self.s.disagg_decode_prealloc_queue.retracted_queue)
        return is_full or getattr(self.s, "polling_count", 0) == 0

    def fields(self) -> dict[str, int]:
        queue = self.s.disagg_decode_prealloc_queue
        return {
            "preallocating": len(queue.queue),
            "transferring": len(self.s.disagg_decode_transfer_queue.queue),
            "offloaded": len(queue.retracted_queue),
        }

    def num_rows(self) -> int:
        return int(self.s.req_to_token_pool._alloc_size) - 1
