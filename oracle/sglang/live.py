"""Extends the harness's driver by what a running server has; needs SGLang's environment.

Settings that the harness does not pass on, and SGLang's clock: it reads the run's virtual time.
"""

import heapq
import logging
import os
import time as real_time
from array import array
from http import HTTPStatus
from types import ModuleType, SimpleNamespace
from typing import Any

from oracle.sglang.drafts import server_flags

# SGLang takes 0 for "not yet". A read of the clock takes a moment, so that no two are equal.
_START_S = 1000.0
_MOMENT_S = 1e-12
_TIMEOUTS = {
    "SGLANG_REQ_WAITING_TIMEOUT": "waiting_timeout_s",
    "SGLANG_REQ_RUNNING_TIMEOUT": "running_timeout_s",
}


class VirtualClock:
    """Stands in for the module `time` in SGLang's modules."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._num_reads = 0

    def perf_counter(self) -> float:
        self._num_reads += 1
        return _START_S + self.now_s + self._num_reads * _MOMENT_S

    def __getattr__(self, name: str) -> Any:
        return getattr(real_time, name)


def gives_up_s(oracle: Any) -> float:
    """When the next client gives up."""
    return float(oracle.impatient[0][0])


def make_request(harness: ModuleType, row: dict[str, Any], config: dict[str, Any]) -> Any:
    """As the harness makes it."""
    from sglang.srt.managers.schedule_batch import Req
    from sglang.srt.sampling.sampling_params import SamplingParams

    sampling = SamplingParams(
        max_new_tokens=row["max_new_tokens"],
        stop_token_ids=[harness.EOS],
        ignore_eos=bool(row.get("ignore_eos", config["ignore_eos"])),
    )
    sampling.normalize(None)
    ids = row.get("input_ids") or harness.expand(row["segments"])
    request = Req(
        str(row["rid"]), "", array("q", ids), sampling, priority=row.get("priority"),
        routing_key=row.get("routing_key"), vocab_size=1 << 31, eos_token_ids=None,
    )  # fmt: skip
    request.tokenizer = None
    return request


class Spin(int):
    """A number of passes that counts as more than none: the server makes another pass at once."""

    def __bool__(self) -> bool:
        return True


def live_oracle(harness: ModuleType) -> type:
    """The harness's driver with these settings."""
    return type("LiveOracle", (LiveDriver, harness.Oracle), {"harness": harness})


class LiveDriver:
    """Goes before the harness's driver among the bases of a class."""

    harness: ModuleType

    def __init__(self, config: dict[str, Any], workload: list[dict[str, Any]]) -> None:
        self.clock = VirtualClock()
        # When clients give up, the row's number, and the request's id.
        self.impatient: list[tuple[float, int, str]] = []
        self.preempted: list[Any] = []
        _use_clock(self.clock)
        _pass_on(config)
        super().__init__(config, workload)
        _finish_scheduler(self.s, config)
        self.s._should_defer_prefill = self.note_deferred

    def begin_schedule(self) -> Any:
        """A batch also names the preemptions of passes before it that launched nothing."""
        self.deferred = False
        batch, queue = super().begin_schedule()
        self.made_room = bool(self.s.retracted or self.s.aborted)
        self.s.preempted = [*self.preempted, *self.s.preempted]
        self.preempted = [] if batch else list(self.s.preempted)
        return batch, queue

    def idle(self) -> None:
        """The harness waits for the next arrival after the last deferred pass.

        It also waits after a decision that has given up the last running request.
        """
        super().idle()
        left = self.s._prefill_decode_interval_remaining
        spins = self.deferred or self.made_room
        self.s._prefill_decode_interval_remaining = Spin(left) if spins else int(left)

    def note_deferred(self, running_batch: Any) -> bool:
        self.deferred = type(self.s)._should_defer_prefill(self.s, running_batch)
        return self.deferred

    def ingest(self, now: float) -> None:
        """As `ingest_requests` of managers/scheduler.py: input in order, then time-outs."""
        from sglang.srt.managers.io_struct import AbortReq

        self.clock.now_s = now
        late = self.s._poll_timeout_aborts()
        while True:
            arrives = self.pending and self.pending[0][1]["arrival"] <= now
            gives_up = self.impatient and self.impatient[0][0] <= now
            if gives_up and not (arrives and self.pending[0][1]["arrival"] < gives_up_s(self)):
                rid = heapq.heappop(self.impatient)[2]
                self.abort(AbortReq(rid=rid))
            elif arrives:
                self.arrive(*self.pending.popleft(), now)
            else:
                break
        for request in late:
            self.abort(request)

    def make_request(self, _number: int, row: dict[str, Any]) -> Any:
        return make_request(self.harness, row, self.cfg)

    def arrive(self, number: int, row: dict[str, Any], now: float) -> None:
        """As the tokenizer's `_validate_one_request`, then `_handle_generate_request`."""
        request = self.make_request(number, row)
        rid, prompt = request.rid, list(request.origin_input_ids)
        self.info[rid] = {
            "rid": rid, "arrival": row["arrival"], "prompt": len(prompt),
            "output_len": row["output_len"],
            "output_seed": row.get("output_seed", (1 << 20) + number),
            "enqueued": now, "first_admit": None, "cached_at_admit": None, "ttft": None,
            "finish": None, "retractions": 0, "preemptions": 0, "status": "live",
        }  # fmt: skip
        if len(prompt) >= self.cfg["context_len"]:
            self.info[rid]["status"] = "rejected"
            return
        self.s.init_req_max_new_tokens(request)
        if len(prompt) >= self.s.max_req_input_len:
            request.set_finish_with_abort("Input length exceeds the maximum.")
            self.info[rid]["prompt"] = 1
        self.live[rid] = request
        self.s._add_request_to_queue(request)
        self.note_aborted()
        if rid in self.live and row.get("gives_up_after") is not None:
            heapq.heappush(self.impatient, (row["arrival"] + row["gives_up_after"], number, rid))

    def abort(self, request: Any) -> None:
        if request.rid in self.live:
            self.s.abort_request(request)
            self.note_aborted()

    def note_aborted(self) -> None:
        while self.s.aborted:
            rid = self.s.aborted.pop()
            self.info[rid]["status"] = "aborted"
            self.live.pop(rid, None)

    def absorb(self, batch: Any, result: Any, t_end: float) -> None:
        ending = [r for r in batch.reqs if r.to_finish is not None]
        super().absorb(batch, result, t_end)
        for request in ending:
            reason = request.finished_reason
            if reason is not None and type(reason).__name__ == "FINISH_ABORT":
                is_refused = reason.status_code == HTTPStatus.BAD_REQUEST
                info = self.info[request.rid]
                info |= {"status": "rejected" if is_refused else "aborted", "finish": None}


def _use_clock(clock: VirtualClock) -> None:
    from sglang.srt.managers import prefill_delayer, scheduler
    from sglang.srt.observability import req_time_stats

    for module in (prefill_delayer, scheduler, req_time_stats):
        module.time = clock
    # The class has kept the real clock.
    state = prefill_delayer._State
    prefill_delayer._State = lambda: state(start_time=clock.perf_counter())


def _pass_on(config: dict[str, Any]) -> None:
    """Add settings to those that the harness installs."""
    from sglang.srt.managers import prefill_delayer
    from sglang.srt.runtime_context import get_parallel

    logging.disable(logging.CRITICAL)
    get_parallel().override_permanently(tp_rank=0, attn_tp_rank=0)
    for variable, key in _TIMEOUTS.items():
        if config.get(key) is not None:
            os.environ[variable] = str(config[key])
    more = {"prefill_decode_interval_min_bs": config.get("prefill_decode_interval_min_bs", 0)}
    more |= server_flags(config)
    if delayer := config.get("prefill_delayer"):
        more |= {"enable_prefill_delayer": True}
        more |= {f"prefill_delayer_{key}": value for key, value in delayer.items()}
        parallel = SimpleNamespace(
            num_dp_ranks=1,
            attn_dp_enabled=False,
            tp_group=SimpleNamespace(cpu_group=None, device_group=None, device="cpu"),
            attn_cp_size=1,
            attn_tp_size=1,
        )
        prefill_delayer.get_parallel = lambda: parallel
        prefill_delayer.all_gather_single = lambda out, mine, **_: out.copy_(mine)
    add_server_args(more)


def add_server_args(settings: dict[str, Any]) -> None:
    """Give SGLang further settings, beside those that the harness passes on."""
    from sglang.srt.runtime_context import get_context

    context = type(get_context())
    install = context.override_server_args
    context.override_server_args = lambda self, **given: install(self, **{**given, **settings})


def _finish_scheduler(scheduler: Any, config: dict[str, Any]) -> None:
    """Make what the harness leaves out."""
    from sglang.srt.managers.min_free_slots_delayer import (
        MinFreeSlotsDelayer,
        resolve_min_free_slots,
    )

    scheduler.enable_continuous_input_polling = False
    scheduler.mm_receiver = None
    scheduler.grammar_manager.abort_requests = lambda _: None
    fewest = resolve_min_free_slots(
        config.get("min_free_slots_delay") or None, config["max_running_requests"]
    )
    if fewest is not None:
        scheduler.min_free_slots_delayer = MinFreeSlotsDelayer(fewest)
    if config.get("prefill_delayer"):
        pool, tree = scheduler.token_to_kv_pool_allocator, scheduler.tree_cache

        def usage() -> float:
            available = int(pool.available_size()) + int(tree.evictable_size())
            return (scheduler.max_total_num_tokens - available) / scheduler.max_total_num_tokens

        stats = SimpleNamespace(get_max_pool_usage=usage)
        scheduler.pool_stats_observer = SimpleNamespace(get_pool_stats=lambda: stats)
