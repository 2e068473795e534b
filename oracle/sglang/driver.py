"""Drives SGLang's scheduler in virtual time: takes in a case's requests, and writes each step.

A server is its scheduler and its parts: the model (`model`, `drafts`), its pools (`pools`), host
memory (`host`), its role (`roles`) and its loop (`loops`, `pipeline`).
"""

import heapq
import zlib
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from sglang.srt.managers.io_struct import AbortReq
from sglang.srt.managers.schedule_batch import FINISH_ABORT

from oracle.sglang.drafts import DraftModel
from oracle.sglang.host import HostMemory
from oracle.sglang.model import Model, prompt
from oracle.sglang.roles import role_of
from oracle.sglang.storage import Storage
from sim.installed.inside.sglang.clock import VirtualClock
from sim.installed.inside.sglang.pools import pools_of
from sim.installed.inside.sglang.quiet import Quiet
from sim.installed.inside.sglang.scheduler import (
    build_scheduler,
    decides_again,
    new_request,
)
from sim.installed.inside.sglang.settings import Config

Row = dict[str, Any]


def in_order(workload: list[Row]) -> list[tuple[int, Row]]:
    """The rows of a workload in order of arrival, with their numbers."""
    return sorted(enumerate(workload), key=lambda each: (each[1]["arrival"], each[0]))


class Driver:
    """One server.

    Attributes:
        s: SGLang's scheduler.
        pending: rows of requests that have not arrived, with their numbers.
        impatient: when clients give up, the row's number, and the request's id.
        live: requests that have not ended, by id.
        info: what is written of each request in the end, by id.
        rows: what is written of each step.
        queue_before: how many requests were waiting before the latest decision.
    """

    def __init__(
        self, config: Config, arrivals: list[tuple[int, Row]], clock: VirtualClock
    ) -> None:
        """`arrivals`: the rows of the workload in order of arrival, with their numbers."""
        self.cfg = config
        self.clock = clock
        storage = Storage(config) if config["hicache_storage_backend"] else None
        self.s = build_scheduler(config)
        self.info: dict[str, Row] = {}
        self.model = (DraftModel if config["speculation"] else Model)(config, self.s, self.info)
        self.pools = pools_of(self.s)
        is_decode = config["disaggregation_mode"] == "decode"
        self.host = (
            HostMemory(self.s, storage, is_decode=is_decode)
            if config["hicache_write_policy"]
            else None
        )
        self.role = role_of(self)
        self.pending = deque(arrivals)
        self.impatient: list[tuple[float, int, str]] = []
        self.live: dict[str, Any] = {}
        self.rows: list[Row] = []
        self.queue_before = 0
        self._preempted: list[Any] = []
        self._should_defer = self.s._should_defer_prefill
        self.s._should_defer_prefill = self._note_deferred
        usage = Quiet(get_max_pool_usage=lambda: max(pool.share_used() for pool in self.pools))
        self.s.pool_stats_observer = Quiet(get_pool_stats=lambda: usage)

    # ---- time ----

    def set_time(self, now_s: float) -> None:
        self.clock.now_s = now_s
        if self.host:
            self.host.set_time(now_s)

    def thread_s(self, now_s: float) -> float:
        """When the thread that decides goes on: a decision may have waited for a copy."""
        return max(now_s, self.host.device.now_s) if self.host else now_s

    def waits_until(self, at_s: float | None) -> float | None:
        """When an idle server goes on that could do so at this time; None: never."""
        return at_s

    def next_event_s(self, now_s: float) -> float | None:
        """When an idle server has something to do; None: nothing more will happen."""
        times = [self.pending[0][1]["arrival"]] if self.pending else []
        times += self.host.events() if self.host else []
        if self.cfg["hicache_storage_backend"]:
            times += self._ends_of_waiting(now_s)
        times += self.role.events(now_s)
        return max(now_s, min(times)) if times else None

    def _ends_of_waiting(self, now_s: float) -> list[float]:
        """When requests that an idle server keeps waiting for storage are given up, or are late."""
        times = [at_s for at_s, _, rid in self.impatient if rid in self.live]
        if (limit_s := self.cfg["waiting_timeout_s"]) is not None:
            for request in self.s.waiting_queue:
                waited_s = self.clock.perf_counter() - request.time_stats.wait_queue_entry_time
                times.append(round(now_s + limit_s - waited_s, 9) + 1e-9)
        return [at_s for at_s in times if at_s > now_s]

    # ---- arrivals ----

    def ingest(self, now_s: float) -> None:
        """As `ingest_requests` of managers/scheduler.py: input in order, then time-outs."""
        self.set_time(now_s)
        late = self.s._poll_timeout_aborts()
        while True:
            arrives = bool(self.pending) and self.pending[0][1]["arrival"] <= now_s
            gives_up = bool(self.impatient) and self.impatient[0][0] <= now_s
            if gives_up and not (arrives and self.pending[0][1]["arrival"] < self.impatient[0][0]):
                self._abort(AbortReq(rid=heapq.heappop(self.impatient)[2]))
            elif arrives:
                self._arrive(*self.pending.popleft(), now_s)
            else:
                break
        for request in late:
            self._abort(request)

    def _arrive(self, number: int, row: Row, now_s: float) -> None:
        """As the tokenizer's `_validate_one_request`, then `_handle_generate_request`."""
        request = self._request(row)
        self.role.knows(number, row, request)
        rid, num_tokens = request.rid, len(request.origin_input_ids)
        info = self.info[rid] = {
            "rid": rid, "arrival": row["arrival"], "prompt": num_tokens,
            "output_len": row["output_len"],
            "output_seed": row.get("output_seed", (1 << 20) + number),
            "enqueued": now_s, "first_admit": None, "cached_at_admit": None, "ttft": None,
            "finish": None, "retractions": 0, "preemptions": 0, "status": "live",
        }  # fmt: skip
        if num_tokens >= self.cfg["context_len"]:
            info["status"] = "rejected"
            return
        self.s.init_req_max_new_tokens(request)
        if num_tokens >= self.s.max_req_input_len:
            request.set_finish_with_abort("Input length exceeds the maximum.")
            info["prompt"] = 1
        self.live[rid] = request
        self.s._add_request_to_queue(request)
        self._note_aborted()
        if rid in self.live and row.get("gives_up_after") is not None:
            heapq.heappush(self.impatient, (row["arrival"] + row["gives_up_after"], number, rid))

    def _request(self, row: Row) -> Any:
        return new_request(
            str(row["rid"]),
            prompt(row["segments"]),
            max_tokens=row["max_new_tokens"],
            ignore_eos=bool(row.get("ignore_eos", self.cfg["ignore_eos"])),
            priority=row.get("priority"),
            routing_key=row.get("routing_key"),
        )

    def _abort(self, request: Any) -> None:
        if request.rid in self.live:
            self.s.abort_request(request)
            self._note_aborted()

    def _note_aborted(self) -> None:
        while self.s.aborted:
            self._end(self.s.aborted.pop(), "aborted")

    def _end(self, rid: str, status: str) -> None:
        self.info[rid]["status"] = status
        self.live.pop(rid, None)

    # ---- a step ----

    def decide(self) -> tuple[Any, int]:
        """The next batch, if there is one, and how many requests were waiting before."""
        self.role.take_in()
        plan = self.watch(
            self.s.get_next_batch_to_run,
            running_batch=self.s.running_batch,
            last_batch=self.s.last_batch,
        )
        self.s.running_batch = plan.running_batch
        return plan.batch_to_run, self.queue_before

    def watch(self, make_plan: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Let SGLang decide, and note what it says of requests that it takes out."""
        if self.host:
            self.host.begin_decision()
        self.s.forget()
        self._deferred = False
        self.queue_before = len(self.s.waiting_queue)
        plan = make_plan(*given, **named)
        for rid in self.s.aborted:
            self._end(rid, "aborted")
        # A batch also names the preemptions of passes before it that launched nothing.
        batch = plan.batch_to_run
        launches = batch is not None and not batch.forward_mode.is_idle()
        self._gave_up = bool(self.s.retracted or self.s.aborted)
        self.s.preempted = [*self._preempted, *self.s.preempted]
        self._preempted = [] if launches else list(self.s.preempted)
        return plan

    def _note_deferred(self, running_batch: Any) -> bool:
        self._deferred = bool(self._should_defer(running_batch))
        return self._deferred

    def decides_again(self) -> bool:
        """Whether a server without a batch makes the next pass at once."""
        return self._gave_up or decides_again(self.s, defers=self._deferred)

    def launch(self, batch: Any, queue_before: int, at_s: float) -> tuple[Any, Row]:
        """Run a batch from `at_s` on; its result, and what is written of the step."""
        self.role.launches(batch)
        result = self.model.run(batch)
        row = self._describe(batch, queue_before, at_s)
        self.rows.append(row)
        return result, row

    def _describe(self, batch: Any, queue_before: int, at_s: float) -> Row:
        """A step, after its KV is allocated and before its result is known."""
        server, is_extend = self.s, batch.forward_mode.is_extend()
        decoding = list(batch.decoding_reqs or []) if is_extend else list(batch.reqs)
        prefill = self._prefills(batch, len(batch.reqs) - len(decoding), at_s) if is_extend else []
        num_prefill_tokens = sum(length for _, _, length in prefill)
        known = self.model.known_lengths(batch)
        context = sum(prefix + length for _, prefix, length in prefill) + sum(known[len(prefill) :])
        end_s = at_s + self.model.step_s(num_prefill_tokens, len(decoding), context)
        if self.host:
            end_s = self.host.step_end(at_s, end_s)
        # Times are whole nanoseconds: a request that arrives just when a step ends is in time.
        row = {
            "step": len(self.rows),
            "t_start": round(at_s, 9),
            "t_end": round(end_s, 9),
            "mode": "mixed" if decoding and prefill else ("extend" if prefill else "decode"),
            "prefill": prefill,
            "n_decode": len(decoding),
            "decode_crc": zlib.crc32(",".join(request.rid for request in decoding).encode()),
            "ctx": context,
            "retracted": list(server.retracted),
            "preempted": list(server.preempted),
            "aborted": list(server.aborted),
            "queue_before": queue_before,
            "queue": len(server.waiting_queue),
            "queue_head": [request.rid for request in server.waiting_queue[:4]],
            "running": len(server.running_batch.reqs),
            "full": bool(server.running_batch.batch_is_full),
            "ratio": round(float(server.new_token_ratio_tracker.current), 9),
            "chunked": server.chunked_req.rid if server.chunked_req is not None else None,
        }
        if server.adder is not None:
            row |= {"stop": server.adder.stop(), "opening": server.adder.opening}
        for part in (*self.pools, *([self.host] if self.host else []), self.role):
            row |= part.fields()
        self._count(row)
        return row | self.model.drafts_of(batch, decoding)

    def _prefills(self, batch: Any, number: int, at_s: float) -> list[list[Any]]:
        """For each prefill row, its id, its tokens with KV, and those to compute."""
        prefills = []
        for i in range(number):
            rid, prefix = batch.reqs[i].rid, batch.prefix_lens[i]
            prefills.append([rid, prefix, batch.extend_lens[i]])
            if self.info[rid]["first_admit"] is None:
                self.info[rid] |= {"first_admit": at_s, "cached_at_admit": prefix}
        return prefills

    def _count(self, row: Row) -> None:
        for rid in row["retracted"]:
            self.info[rid]["retractions"] += 1
        for _, victims in row["preempted"]:
            for rid in victims:
                self.info[rid]["preemptions"] += 1

    def absorb(self, batch: Any, result: Any, end_s: float) -> None:
        """Hand a step's result to SGLang, and read off what it changes."""
        self.set_time(end_s)
        num_before = {request.rid: len(request.output_ids) for request in batch.reqs}
        ending = [request for request in batch.reqs if request.to_finish is not None]
        self.s.process_batch_result(batch, result)
        for request in batch.reqs:
            info = self.info[request.rid]
            num_tokens = len(request.output_ids)
            if num_tokens > num_before[request.rid] and info["ttft"] is None:
                info["ttft"] = round(end_s - info["arrival"], 9)
            if request.finished() and info["status"] == "live":
                info |= {
                    "finish": round(end_s, 9), "output_tokens": num_tokens,
                    "cached_tokens": int(request.cached_tokens),
                    "reason": type(request.finished_reason).__name__,
                }  # fmt: skip
                self._end(request.rid, "finished")
        for request in ending:
            reason = request.finished_reason
            if isinstance(reason, FINISH_ABORT):
                is_refused = reason.status_code == HTTPStatus.BAD_REQUEST
                status = "rejected" if is_refused else "aborted"
                self.info[request.rid] |= {"status": status, "finish": None}

    def idle(self) -> None:
        """What `Scheduler.on_idle` does to the scheduler's state."""
        if not self.s.is_fully_idle():
            return
        for pool in self.pools:
            pool.check_idle()
        rows = self.s.req_to_token_pool
        if rows.available_size() != self.role.num_rows():
            raise RuntimeError(f"leak at idle: {rows.available_size()} rows are free")
        self.s.new_token_ratio_tracker.reset()

    def results(self) -> tuple[list[Row], list[Row]]:
        """What is written: steps, then requests."""
        for rid in self.live:
            self.info[rid]["status"] = "stuck"
        self.role.end()
        return self.rows, list(self.info.values())
