"""One simulated server whose steps vLLM's own scheduler decides.

See `sim.installed.inside.main` for what each method is told, and what it answers.
"""

import os
from collections import deque
from typing import Any

from sim.installed.inside.placeholders import install_placeholders

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
install_placeholders()

import vllm
from vllm.config.scheduler import SchedulerConfig
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import RequestStatus

from sim.installed.inside.vllm.scheduler import (
    build_scheduler,
    note_preemptions,
    request_maker,
    waiting_requests,
)

Line = dict[str, Any]

VERSION = str(vllm.__version__)
NEEDS_PROCESS = False
# What a version that lacks the setting does.
_WITHOUT: Line = {
    "async_scheduling": False,
    "long_prefill_token_threshold_adaptive": False,
    "max_num_active_seqs": None,
    "prefill_schedule_interval": 1,
    "scheduler_reserve_full_isl": False,
    "watermark": 0.0,
}


def known_settings(settings: Line) -> Line:
    """The settings without those that this version lacks.

    Raises:
        ValueError: one of these asks for what the version does not do.
    """
    fields = SchedulerConfig.__dataclass_fields__
    lacking = {name for name in _WITHOUT if name not in fields}
    for name in sorted(lacking):
        if settings[name] != _WITHOUT[name]:
            raise ValueError(f"vLLM {VERSION} has no {name}")
    # `Server` itself must know whether steps are decided ahead.
    return {name: value for name, value in settings.items() if name not in lacking} | {
        "async_scheduling": settings["async_scheduling"]
    }


class Server:
    """vLLM's scheduler, and its decisions whose results are not known yet."""

    def __init__(self, settings: Line) -> None:
        config = known_settings(settings)
        self._scheduler = build_scheduler(config)
        self._new_request = request_maker(config, self._scheduler)
        self._block_size = config["block_size"]
        self._most_running = config.get("max_num_active_seqs") or config["max_num_seqs"]
        self._hears_of_drafts = "speculation" in config and not config["async_scheduling"]
        self._in_flight: deque[Any] = deque()
        self._preempted: list[tuple[str, str]] = []
        note_preemptions(self._scheduler, lambda by, rid: self._preempted.append((by, rid)))

    def add(self, now_ns: int, requests: list[Line]) -> Line:
        for each in requests:
            self._scheduler.add_request(self._new_request(**each))
        return self._state()

    def abort(self, now_ns: int, rid: str) -> Line:
        self._scheduler.finish_requests([rid], RequestStatus.FINISHED_ABORTED)
        return self._state() | {"aborted": [rid]}

    def decide(self, now_ns: int) -> Line:
        scheduler, rows = self._scheduler, []
        self._preempted.clear()
        if scheduler.has_requests():
            decided = scheduler.schedule()
            drafts = decided.scheduled_spec_decode_tokens
            for rid, num_new in decided.num_scheduled_tokens.items():
                request = scheduler.requests[rid]
                num_computed = request.num_computed_tokens - num_new
                samples, num_drafts = not request.is_prefill_chunk, len(drafts.get(rid, ()))
                rows.append([rid, num_computed, num_new, samples, num_drafts])
            if rows:
                self._in_flight.append(decided)
            else:
                self._take(decided, {})
        preempted = self._preempted
        return {
            "rows": rows,
            "retracted": [],
            "preempted": preempted,
            "again": bool(preempted),
        } | self._state()

    def result(self, now_ns: int, sampled: dict[str, list[int]], drafts: dict[str, int]) -> Line:
        outputs = self._take(self._in_flight.popleft(), sampled)
        if self._hears_of_drafts:
            # Their tokens decide nothing. Under async scheduling each row counts on all places.
            tokens = [[0] * number for number in drafts.values()]
            self._scheduler.update_draft_token_ids(DraftTokenIds(list(drafts), tokens))
        return self._state() | {
            "given": [each.request_id for each in outputs if each.new_token_ids],
            "ended": [each.request_id for each in outputs if each.finish_reason is not None],
        }

    def _take(self, decided: Any, sampled: dict[str, list[int]]) -> list[Any]:
        """Give vLLM the result of a decision: by rid, the tokens that each row has sampled."""
        rids = list(decided.num_scheduled_tokens)
        result = ModelRunnerOutput(
            req_ids=rids,
            req_id_to_index={rid: place for place, rid in enumerate(rids)},
            sampled_token_ids=[sampled.get(rid, []) for rid in rids],
        )
        outputs = self._scheduler.update_from_output(decided, result)
        return [each for of_client in outputs.values() for each in of_client.outputs]

    def _state(self) -> Line:
        scheduler = self._scheduler
        running = scheduler.running
        chunked = (each.request_id for each in running if each.is_prefill_chunk)
        free_blocks = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        return {
            "free_tokens": free_blocks * self._block_size,
            "evictable_tokens": 0,
            "waiting": len(waiting_requests(scheduler)),
            "running": len(running),
            "full": len(running) >= self._most_running,
            "ratio": 0.0,
            "chunked": next(chunked, None),
            "aborted": [],
        }
