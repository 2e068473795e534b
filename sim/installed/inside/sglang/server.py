"""One simulated server whose steps SGLang's own scheduler decides.

See `sim.installed.inside.main` for what each method is told, and what it answers. SGLang's settings
are global to a process: each server has one of its own.
"""

import os
import random
from collections import deque
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from sim.installed.inside.sglang.packages import import_sglang

import_sglang()

import torch
from sglang.srt.managers import schedule_policy
from sglang.srt.managers.io_struct import AbortReq
from sglang.srt.managers.utils import GenerationBatchResult

from sim.installed.inside.sglang.clock import VirtualClock
from sim.installed.inside.sglang.pools import pools_of
from sim.installed.inside.sglang.quiet import Quiet
from sim.installed.inside.sglang.scheduler import (
    begin_forward,
    build_scheduler,
    decides_again,
    new_request,
)
from sim.installed.inside.sglang.settings import DEFAULTS, environment

Line = dict[str, Any]

VERSION = version("sglang")
NEEDS_PROCESS = True
# SGLang aborts all requests whose names begin with the given one. With this ending, only one does.
_END_OF_RID = "/"
# Given to rows whose token SGLang throws away: after a part of a prompt, or a request's end.
_NO_TOKEN = 1000


def _ours(rids: Iterable[str]) -> list[str]:
    """The simulator's names of requests."""
    return [rid.removesuffix(_END_OF_RID) for rid in rids]


class Server:
    """SGLang's scheduler, and its batches whose results are not known yet."""

    def __init__(self, settings: Line) -> None:
        config = DEFAULTS | settings
        os.environ |= environment(config)
        schedule_policy.CLIP_MAX_NEW_TOKENS = config["clip_max_new_tokens"]
        random.seed(config["random_seed"])
        self._clock = VirtualClock()
        self._clock.install()
        scheduler = self._scheduler = build_scheduler(config)
        scheduler.enable_skip_finishing_decode = config["enable_overlap"]
        self._overlaps = config["enable_overlap"]
        pools = pools_of(scheduler)
        self._pool = pools[0]
        usage = Quiet(get_max_pool_usage=lambda: max(pool.share_used() for pool in pools))
        scheduler.pool_stats_observer = Quiet(get_pool_stats=lambda: usage)
        should_defer = scheduler._should_defer_prefill
        self._defers = False

        def note_deferred(*given: Any) -> bool:
            self._defers = bool(should_defer(*given))
            return self._defers

        scheduler._should_defer_prefill = note_deferred
        self._in_flight = scheduler.result_queue if self._overlaps else deque[Any]()
        self._last: Any = None

    def add(self, now_ns: int, requests: list[Line]) -> Line:
        self._set_time(now_ns)
        for each in requests:
            request, scheduler = new_request(**each), self._scheduler
            request.rid = f"{request.rid}{_END_OF_RID}"
            scheduler.init_req_max_new_tokens(request)
            if len(each["prompt"]) >= scheduler.max_req_input_len:
                request.set_finish_with_abort("Input length exceeds the maximum.")
            scheduler._add_request_to_queue(request)
        return self._state()

    def late(self, now_ns: int) -> Line:
        self._set_time(now_ns)
        return {"late": _ours(each.rid for each in self._scheduler._poll_timeout_aborts())}

    def abort(self, now_ns: int, rid: str) -> Line:
        self._set_time(now_ns)
        self._scheduler.abort_request(AbortReq(rid=f"{rid}{_END_OF_RID}"))
        return self._state()

    def decide(self, now_ns: int) -> Line:
        self._set_time(now_ns)
        scheduler = self._scheduler
        self._defers, follows_result = False, not self._in_flight
        scheduler.forget()
        plan = scheduler.get_next_batch_to_run(
            running_batch=scheduler.running_batch, last_batch=scheduler.last_batch
        )
        scheduler.running_batch = plan.running_batch
        batch = self._last = plan.batch_to_run
        rows: list[list[Any]] = []
        if batch:
            begin_forward(scheduler, batch)
            rows = self._rows(batch)
            # Under overlap SGLang looks into its queue of results for what is in flight.
            self._in_flight.append((batch.copy() if self._overlaps else batch, None))
        elif not self._in_flight and scheduler.is_fully_idle():
            scheduler.new_token_ratio_tracker.reset()
        if follows_result and (self._overlaps or not batch):
            scheduler.last_batch = batch
        took_out = bool(scheduler.retracted or scheduler.aborted)
        preempted = [_ours((by, rid)) for by, victims in scheduler.preempted for rid in victims]
        return {
            "rows": rows,
            "retracted": _ours(scheduler.retracted),
            "preempted": preempted,
            "again": took_out or decides_again(scheduler, defers=self._defers),
        } | self._state()

    def _rows(self, batch: Any) -> list[list[Any]]:
        """Prefill rows, then decode rows."""
        lengths = [int(length) for length in batch.seq_lens_cpu.tolist()]
        num_prefill = 0
        if batch.forward_mode.is_extend():
            num_prefill = len(batch.reqs) - len(batch.decoding_reqs or [])
        chunked, rows = self._scheduler.chunked_req, []
        rids = _ours(request.rid for request in batch.reqs)
        for place, (request, length) in enumerate(zip(batch.reqs, lengths, strict=True)):
            if place < num_prefill:
                part = [int(batch.prefix_lens[place]), int(batch.extend_lens[place])]
                rows.append([rids[place], *part, request is not chunked, 0])
            else:
                rows.append([rids[place], length - 1, 1, True, 0])
        return rows

    def result(self, now_ns: int, sampled: dict[str, list[int]], _drafts: dict[str, int]) -> Line:
        self._set_time(now_ns)
        self._scheduler.forget()
        batch, _ = self._in_flight.popleft()
        lives = [request for request in batch.reqs if not request.finished()]
        num_before = {request.rid: len(request.output_ids) for request in lives}
        rids = _ours(request.rid for request in batch.reqs)
        tokens = [sampled.get(rid, [_NO_TOKEN])[0] for rid in rids]
        result = GenerationBatchResult(
            logits_output=None,
            next_token_ids=torch.tensor(tokens, dtype=torch.int64),
            can_run_cuda_graph=False,
        )
        self._scheduler.process_batch_result(batch, result)
        # As SGLang's event loop does at the end of each pass.
        self._scheduler.last_batch = self._last
        return self._state() | {
            "given": _ours(r.rid for r in lives if len(r.output_ids) > num_before[r.rid]),
            "ended": _ours(r.rid for r in lives if r.finished()),
        }

    def _set_time(self, now_ns: int) -> None:
        self._clock.now_s = now_ns / 1e9

    def _state(self) -> Line:
        scheduler = self._scheduler
        free, evictable = self._pool.counts()
        chunked, aborted = scheduler.chunked_req, _ours(scheduler.aborted)
        scheduler.aborted.clear()
        return {
            "free_tokens": free,
            "evictable_tokens": evictable,
            "waiting": len(scheduler.waiting_queue),
            "running": len(scheduler.running_batch.reqs),
            "full": bool(scheduler.running_batch.batch_is_full),
            "ratio": float(scheduler.new_token_ratio_tracker.current),
            "chunked": None if chunked is None else _ours([chunked.rid])[0],
            "aborted": aborted,
        }
