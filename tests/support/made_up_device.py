"""The real server on a made-up device, on a clock that stands still unless something takes time."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np

from calibrate.rebuild import RebuiltRun, rebuild
from realrun.server.executor import LaunchedBatch, TorchExecutor
from realrun.server.real_server import RealServer
from realrun.server.traffic import WorkloadTraffic
from realrun.tokens.outputs import ForcedTokens
from sim.core.batch import Batch
from sim.engine.page_pool import PageCounts
from sim.families import build_engine
from sim.latency.features import step_features
from sim.runlog.run_log_file import write_run_log
from sim.scenario.load import LoadedScenario
from sim.workload.kinds.build import build_workload
from tests.support.measured_runs import MADE_UP
from tests.support.scheduler_settings import build_scheduler_config

US = 1_000
MS = 1_000 * US


class Times(NamedTuple):
    """How long everything takes on the device and on its host.

    Attributes:
        graph_sizes: for how many decode rows there are CUDA graphs.
        eager_launch_ns: to launch a step without a graph; one with a graph takes 0.2 ms.
        device_ns, device_ns_per_token: of a step. By default a small prefill waits for its launch.
        plan_ns: before a launch, and 20 us a row.
        stalls: from when, and for how long, the host does nothing.
    """

    graph_sizes: tuple[int, ...] = (1, 2, 4, 8)
    eager_launch_ns: int = 9 * MS
    device_ns: int = 2 * MS
    device_ns_per_token: int = 15 * US
    plan_ns: int = 400 * US
    stalls: tuple[tuple[int, int], ...] = ()


USUAL = Times()


class Clock:
    """A clock that stands still unless something takes time."""

    def __init__(self) -> None:
        self.time_ns = 0

    def now_ns(self) -> int:
        return self.time_ns

    def of_counter_ns(self, counter_ns: int) -> int:
        return counter_ns

    def sleep_until(self, time_ns: int) -> None:
        self.time_ns = max(self.time_ns, time_ns)


class _Submitted(NamedTuple):
    start_ns: int
    end_ns: int

    @property
    def forward_ns(self) -> int:
        return self.end_ns - self.start_ns


class Device(TorchExecutor):
    """An executor that computes nothing; its steps take the given times."""

    def __init__(self, clock: Clock, times: Times) -> None:
        self.clock, self.times = clock, times
        self.tokens = ForcedTokens()
        self._free_ns = 0
        self._stalls = list(times.stalls)

    def launch(self, batch: Batch) -> Any:
        step, times = step_features(batch), self.times
        while self._stalls and self._stalls[0][0] <= self.clock.time_ns:
            self.clock.time_ns += self._stalls.pop(0)[1]
        graph = next((size for size in times.graph_sizes if size >= step.num_decode_rows), 0)
        graph = 0 if batch.prefill else graph
        plan_ns = times.plan_ns + 20 * US * (step.num_decode_rows + step.num_prefill_rows)
        launch_ns = 200 * US if graph else times.eager_launch_ns
        begin_ns = self.clock.time_ns + plan_ns
        launched_ns = self.clock.time_ns = begin_ns + launch_ns
        start_ns = max(launched_ns if graph else begin_ns, self._free_ns)
        num_tokens = step.num_prefill_tokens + (graph or step.num_tokens)
        device_ns = times.device_ns + times.device_ns_per_token * num_tokens
        # The last kernel is launched a little before the host is done.
        self._free_ns = max(start_ns + device_ns, launched_ns - 100 * US)
        return LaunchedBatch(
            batch=batch,
            submitted=cast("Any", _Submitted(start_ns, self._free_ns)),
            work=cast("Any", SimpleNamespace(sample_ns=0)),
            padded_rows=graph,
            max_decode_ctx=0,
            samples=np.ones(step.num_prefill_rows + step.num_decode_rows, dtype=np.int64),
            copies=(),
            plan_ns=plan_ns,
            launch_ns=launch_ns,
        )

    def take_result(self, launched: Any) -> Any:
        self.clock.time_ns = max(self.clock.time_ns, launched.submitted.end_ns) + 50 * US
        return self.tokens.take(launched.batch, np.empty(0, dtype=np.int64))

    def note_cached_prefills(self, batch: Batch) -> None:
        pass

    def forget(self, rid: str) -> None:
        self.tokens.forget(rid)


def serve(
    path: Path, loaded: LoadedScenario, times: Times = USUAL, num_reserved: int = 0
) -> RebuiltRun:
    """Serve a scenario; returns its log, read back. `num_reserved` pages are never freed."""
    config = build_scheduler_config(loaded.scenario, base_dir=Path())
    workload = build_workload(loaded.scenario.workload, seed=loaded.scenario.seed, base_dir=Path())
    clock = Clock()
    device = Device(clock, times)
    pool = PageCounts(config.pool_tokens // config.page_size, config.page_size)
    pool.reserve(num_reserved)
    engine = build_engine(config, pool=pool, executor=device)
    server = RealServer(
        engine, device, WorkloadTraffic(workload), cast("Any", clock), overlaps=config.overlaps
    )
    server.serve()
    meta = {
        "source": "realrun",
        "scenario": loaded.scenario.model_dump(mode="json"),
        "scenario_hash": loaded.content_hash,
        "scheduler": config.as_dict(),
        "sampling": "forced",
        "max_total_tokens": config.pool_tokens,
        "fingerprint": MADE_UP,
        "graph_sizes": list(times.graph_sizes),
    }
    write_run_log(path, meta, server.recorder.lines())
    return rebuild(path)
