"""Extends the harness's driver by what a running server has; needs SGLang's environment.

Settings that the harness does not pass on, and SGLang's clock: it reads the run's virtual time.
"""

import time as real_time
from types import ModuleType, SimpleNamespace
from typing import Any

# SGLang takes 0 for "not yet". A read of the clock takes a moment, so that no two are equal.
_START_S = 1000.0
_MOMENT_S = 1e-12


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


class Spin(int):
    """A number of passes that counts as more than none: the server makes another pass at once."""

    def __bool__(self) -> bool:
        return True


def live_oracle(harness: ModuleType) -> type:
    """The harness's driver with these settings."""

    class LiveOracle(harness.Oracle):
        def __init__(self, config: dict[str, Any], workload: list[dict[str, Any]]) -> None:
            self.clock = VirtualClock()
            _use_clock(self.clock)
            _pass_on(config)
            super().__init__(config, workload)
            _finish_scheduler(self.s, config)
            self.s._should_defer_prefill = self.note_deferred

        def begin_schedule(self) -> Any:
            self.deferred = False
            return super().begin_schedule()

        def idle(self) -> None:
            """The harness waits for the next arrival after the last deferred pass."""
            super().idle()
            left = self.s._prefill_decode_interval_remaining
            self.s._prefill_decode_interval_remaining = Spin(left) if self.deferred else int(left)

        def note_deferred(self, running_batch: Any) -> bool:
            self.deferred = type(self.s)._should_defer_prefill(self.s, running_batch)
            return self.deferred

        def ingest(self, now: float) -> None:
            self.clock.now_s = now
            super().ingest(now)

    return LiveOracle


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
    from sglang.srt.runtime_context import get_context, get_parallel

    context = type(get_context())
    install = context.override_server_args
    more = {"prefill_decode_interval_min_bs": config.get("prefill_decode_interval_min_bs", 0)}
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
        get_parallel().override_permanently(attn_tp_rank=0)
    context.override_server_args = lambda self, **given: install(self, **{**given, **more})


def _finish_scheduler(scheduler: Any, config: dict[str, Any]) -> None:
    """Make what the harness leaves out."""
    from sglang.srt.managers.min_free_slots_delayer import (
        MinFreeSlotsDelayer,
        resolve_min_free_slots,
    )

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
