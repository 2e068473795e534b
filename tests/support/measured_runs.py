"""Makes run logs like those of a real server, on a device whose step times are known.

The loop is that of a real server, on a simulated clock. The simulator's server decides right after
a result. This one may decide later (`lag_ns`), and then sees the requests that arrived meanwhile.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from sim.core.batch import Batch, ScriptedExecutor
from sim.core.packed import Line
from sim.core.request import RequestSpec
from sim.engine.logged_decision import decode_crc, describe_decision
from sim.engine.page_pool import PageIds
from sim.engine.records import RequestRecord, StepState
from sim.engine.server_config import ServerConfig
from sim.families import build_engine
from sim.latency.features import step_features
from sim.latency.model import LatencyModel
from sim.runlog.decisions import step_line, step_times
from sim.runlog.run_log_file import RecordedRun, measured_request_line
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import BESIDE_THE_RUN
from sim.workload.kinds.build import build_workload
from sim.workload.workload import ScriptedRequest
from tests.support.scheduler_settings import build_scheduler_config

MADE_UP = {"device": "made up", "torch": "0", "num_threads": None, "model": "tiny"}


class Disturbance(NamedTuple):
    """How a measured run differs from a simulated one.

    Attributes:
        noise: relative standard deviation of step times.
        lag_ns: time from a result to the next decision.
        seed: seed of the noise.
    """

    noise: float = 0.0
    lag_ns: int = 0
    seed: int = 0


def measured_run(
    loaded: LoadedScenario,
    latency: LatencyModel,
    disturbance: Disturbance | None = None,
    arrivals: Iterable[ScriptedRequest] | None = None,
) -> RecordedRun:
    """Serve a scenario on a device with these step times.

    Args:
        loaded: the scenario; it must give the pool size.
        latency: true times of the steps.
        disturbance: None: step times have no noise and decisions no lag, as in a simulation.
        arrivals: requests by time of arrival; None: the scenario's open-loop ones.
    """
    config = build_scheduler_config(loaded.scenario, base_dir=loaded.base_dir)
    if arrivals is None:
        workload = loaded.scenario.workload
        built = build_workload(workload, seed=loaded.scenario.seed, base_dir=loaded.base_dir)
        arrivals = built.arrivals()
    server = _TimedServer(config, latency, disturbance or Disturbance(), arrivals)
    server.serve()
    return RecordedRun.of_lines(_meta(loaded, config), server.lines())


class _Launched(NamedTuple):
    batch: Batch
    end_ns: int
    line: Line


class _TimedServer:
    def __init__(
        self,
        config: ServerConfig,
        latency: LatencyModel,
        disturbance: Disturbance,
        arrivals: Iterable[ScriptedRequest],
    ) -> None:
        self._overlaps = config.overlaps
        self._executor = ScriptedExecutor()
        pool = PageIds(config.pool_tokens // config.page_size, config.page_size)
        self._engine = build_engine(config, pool=pool, executor=self._executor)
        self._latency = latency
        self._disturbance = disturbance
        self._rng = np.random.default_rng(disturbance.seed)
        self._arrivals = deque(arrivals)
        self._free_ns = self._device_free_ns = 0
        self._decides_again = False
        self._looks_ns: list[int] = []
        self._steps: list[Line] = []
        self._specs: dict[str, RequestSpec] = {}
        self._records: dict[str, RequestRecord] = {}
        self._token_ns: dict[str, list[int]] = {}

    def lines(self) -> Iterator[Line]:
        """Steps in order of launch, then requests in order of arrival."""
        yield from self._steps
        for rid in self._specs:
            yield measured_request_line(self._records[rid], self._token_ns[rid])

    def serve(self) -> None:
        in_flight: _Launched | None = None
        while in_flight is not None or self._engine.requests or self._arrivals:
            launched = self._launch()
            ending = in_flight if self._overlaps else launched
            if ending is not None:
                self._finish(ending)
            elif launched is None and self._arrivals and not self._decides_again:
                self._free_ns = max(self._free_ns, self._arrivals[0].spec.arrival_ns)
            in_flight = launched if self._overlaps else None

    def _launch(self) -> _Launched | None:
        decided_ns = self._free_ns + self._disturbance.lag_ns
        while self._arrivals and self._arrivals[0].spec.arrival_ns <= decided_ns:
            self._take(self._arrivals.popleft())
        decided = self._engine.begin_step(decided_ns)
        self._record(decided.over)
        # If this decision launched nothing, the next one may admit the requests that it put back.
        self._decides_again = bool(decided.preempted)
        if decided.batch is None or decided.state is None:
            self._looks_ns.append(decided_ns)
            self._free_ns = decided_ns
            return None
        return self._run(decided.batch, decided.state, decided_ns)

    def _run(self, batch: Batch, state: StepState, decided_ns: int) -> _Launched:
        features = step_features(batch)
        times = self._latency.step_ns(features)
        device_ns, host_ns = self._disturbed(times.device_ns), self._disturbed(times.host_ns)
        self._latency.consume(features, 1)
        ready_ns = decided_ns + host_ns
        start_ns = max(ready_ns, self._device_free_ns)
        end_ns = self._device_free_ns = start_ns + max(device_ns, 1)
        line = step_line(
            len(self._steps),
            step_times(decided_ns, start_ns, end_ns, ready_ns - self._free_ns),
            describe_decision(batch, state, decode_crc(batch)),
            measured={
                "forward_ns": end_ns - start_ns,
                "looks_ns": self._looks_ns,
                "padded_rows": 0,
            },
        )
        self._looks_ns = []
        self._steps.append(line)
        self._free_ns = ready_ns
        return _Launched(batch, end_ns, line)

    def _finish(self, launched: _Launched) -> None:
        known_ns = self._free_ns = max(self._free_ns, launched.end_ns)
        launched.line["t_known_ns"] = known_ns
        self._note_tokens(launched.batch, known_ns)
        output = self._executor.execute(launched.batch)
        self._record(self._engine.end_step(launched.batch, output, known_ns))

    def _note_tokens(self, batch: Batch, known_ns: int) -> None:
        sampling = [row.rid for row in batch.prefill if row.samples]
        for rid in [*sampling, *batch.decode_rids]:
            if self._engine.takes_token(rid):
                self._token_ns[rid].append(known_ns)

    def _take(self, request: ScriptedRequest) -> None:
        spec = request.spec
        self._specs[spec.rid] = spec
        self._token_ns[spec.rid] = []
        rejection = self._engine.rejection(spec, (self._engine,))
        if rejection is not None:
            self._record([rejection])
            return
        self._executor.add(spec.rid, request.script, ignore_eos=spec.ignore_eos)
        self._engine.submit(spec)

    def _record(self, records: Iterable[RequestRecord]) -> None:
        self._records |= {record.spec.rid: record for record in records}

    def _disturbed(self, time_ns: int) -> int:
        share = self._disturbance.noise * float(self._rng.standard_normal())
        return round(time_ns * max(1 + share, 0.0))


def _meta(loaded: LoadedScenario, config: ServerConfig) -> dict[str, Any]:
    return {
        "source": "realrun",
        "name": loaded.scenario.name,
        "scenario_hash": loaded.content_hash,
        "scenario": loaded.scenario.model_dump(mode="json", exclude=set(BESIDE_THE_RUN)),
        "scheduler": config.as_dict(),
        "sampling": "forced",
        "max_total_tokens": config.pool_tokens,
        "fingerprint": dict(MADE_UP),
    }
