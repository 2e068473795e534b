"""The real server on a made-up device that waits for its launches, and the twin of that run."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from calibrate.dataset import load_dataset
from calibrate.fit import fit_profile
from calibrate.rebuild import rebuild
from calibrate.stages import replay_decisions, simulate_profile, simulate_recorded
from calibrate.step_times import measured_times
from realrun.server.executor import LaunchedBatch, TorchExecutor
from realrun.server.real_server import RealServer
from realrun.server.traffic import WorkloadTraffic
from realrun.tokens.outputs import ForcedTokens
from sim.core.errors import AccountError
from sim.engine.page_pool import PageCounts
from sim.families import build_engine
from sim.latency.features import step_features
from sim.metrics.summary import summarise
from sim.runlog.run_log_file import write_run_log
from sim.scenario.build import build_scheduler_config
from sim.scenario.load import load_scenario_text
from sim.workload.kinds.build import build_workload
from tests.support.measured_runs import MADE_UP

US = 1_000
GRAPH_SIZES = (1, 2, 4, 8)
SCENARIO = """\
name: launch-bound
seed: 3
latency: {kind: linear, step_s: 0, per_prefill_token_s: 0, per_decode_request_s: 0, per_context_token_s: 0}
workload:
  kind: synthetic
  num_requests: 120
  arrivals: {kind: poisson, rate_rps: 60}
  prompt_tokens: {kind: uniform, min: 20, max: 900}
  output_tokens: {kind: uniform, min: 2, max: 60}
scheduler: {page_size: 16, max_total_tokens: 65536, context_length: 2048, chunked_prefill_size: 512,
  max_running_requests: 12}
"""  # noqa: E501


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


class Submitted(NamedTuple):
    start_ns: int
    end_ns: int

    @property
    def forward_ns(self) -> int:
        return self.end_ns - self.start_ns


class Device(TorchExecutor):
    """An executor whose launches take 9 ms a step without a graph, and 0.2 ms a graph.

    The device needs 2 ms and 15 us a token, so that it waits for the launch of small prefills.
    """

    def __init__(self, clock):
        self.clock = clock
        self.tokens = ForcedTokens()
        self._free_ns = 0

    def launch(self, batch):
        step = step_features(batch)
        graph = next((size for size in GRAPH_SIZES if size >= step.num_decode_rows), 0)
        graph = 0 if batch.prefill else graph
        plan_ns = 400 * US + 20 * US * (step.num_decode_rows + step.num_prefill_rows)
        launch_ns = 200 * US if graph else 9_000 * US
        begin_ns = self.clock.time_ns + plan_ns
        launched_ns = self.clock.time_ns = begin_ns + launch_ns
        start_ns = max(launched_ns if graph else begin_ns, self._free_ns)
        device_ns = 2_000 * US + 15 * US * (step.num_prefill_tokens + (graph or step.num_tokens))
        # The last kernel is launched a little before the host is done.
        self._free_ns = max(start_ns + device_ns, launched_ns - 100 * US)
        return LaunchedBatch(
            batch=batch,
            submitted=Submitted(start_ns, self._free_ns),
            work=SimpleNamespace(sample_ns=0),
            padded_rows=graph,
            max_decode_ctx=0,
            samples=np.ones(step.num_prefill_rows + step.num_decode_rows, dtype=np.int64),
            plan_ns=plan_ns,
            launch_ns=launch_ns,
        )

    def take_result(self, launched):
        self.clock.time_ns = max(self.clock.time_ns, launched.submitted.end_ns) + 50 * US
        return self.tokens.take(launched.batch, np.empty(0, dtype=np.int64))

    def note_cached_prefills(self, batch):
        pass

    def forget(self, rid):
        self.tokens.forget(rid)


@pytest.fixture(params=["overlap", "normal"])
def run(request, tmp_path):
    """The log of such a run, read back."""
    off = "false" if request.param == "overlap" else "true"
    return serve(tmp_path, [f"scheduler.disable_overlap_schedule={off}"])


def serve(tmp_path, options, num_reserved=0):
    """Serve the scenario; returns its log, read back. `num_reserved` pages are never freed."""
    loaded = load_scenario_text(SCENARIO, options)
    config = build_scheduler_config(loaded.scenario, base_dir=Path())
    workload = build_workload(loaded.scenario.workload, seed=3, base_dir=Path())
    clock = Clock()
    device = Device(clock)
    pool = PageCounts(config.pool_tokens // config.page_size, config.page_size)
    pool.reserve(num_reserved)
    engine = build_engine(config, pool=pool, executor=device)
    traffic = WorkloadTraffic(workload)
    server = RealServer(engine, device, traffic, clock, overlaps=config.overlaps)
    server.serve()
    meta = {
        "source": "realrun",
        "scenario": loaded.scenario.model_dump(mode="json"),
        "scenario_hash": loaded.content_hash,
        "scheduler": config.as_dict(),
        "sampling": "forced",
        "max_total_tokens": config.pool_tokens,
        "fingerprint": MADE_UP,
        "graph_sizes": list(GRAPH_SIZES),
    }
    write_run_log(tmp_path / "run.jsonl", meta, server.recorder.lines())
    return rebuild(tmp_path / "run.jsonl")


def test_launch_bound_run_is_reproduced_by_its_twin(run):
    """Decisions exactly; with recorded and with fitted times, TTFT, TPOT and throughput."""
    assert replay_decisions(run) is None
    real = summarise(run.log)
    profile = fit_profile(load_dataset([run.recorded.path]), name="launched")
    recorded, fitted = simulate_recorded(run), simulate_profile(run, profile)
    for simulated, tolerance in ((recorded, 1e-4), (fitted, 0.015)):
        assert simulated.same_steps_pct == 100
        found = summarise(simulated.log)
        for name in ("mean_ttft_ms", "mean_tpot_ms", "output_throughput"):
            assert found[name] == pytest.approx(real[name], rel=tolerance), name


def test_launch_bound_run_tells_launch_and_host_apart(run):
    """Plan and read-back are host time, and of graphs their launch; the slack of 100 us, too."""
    times = measured_times(run.recorded.steps, overlaps=run.overlaps)
    waited = [time.is_launch_bound for time in times]
    assert 20 < sum(waited) < len(waited) - 20
    for line, time in list(zip(run.recorded.steps, times, strict=True))[3:]:
        rows, is_graph = line["n_decode"] + len(line["prefill"]), bool(line["padded_rows"])
        host_ns = US * (450 + 20 * rows + (200 if is_graph else 0))
        assert host_ns - 50 * US <= time.host_ns <= host_ns + 100 * US
        assert time.launch_ns == pytest.approx(0 if is_graph else 9_000 * US, rel=0.02)


GIVE_UP = "workload.give_up={share: 0.4, after_s: {kind: exponential, mean: 0.2}}"
VLLM = "scheduler={family: vllm, block_size: 16, num_gpu_blocks_override: 300, max_num_seqs: 12"


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["scheduler.disable_overlap_schedule=true", "scheduler.enable_mixed_chunk=true"],
        [VLLM + ", max_num_batched_tokens: 512, max_model_len: 2048}"],
        [VLLM + ", max_num_batched_tokens: 64, max_model_len: 2048, async_scheduling: false}"],
    ],
    ids=["sglang", "sglang, normal, mixed", "vllm", "vllm, sync"],
)
def test_requests_whose_clients_give_up_end_at_the_same_decisions_again(tmp_path, options):
    """While they wait, between chunks and while they run; at the times that the log knows."""
    run = serve(tmp_path, [*options, GIVE_UP])
    statuses = Counter(line["status"] for line in run.recorded.requests)
    assert statuses["finished"] > 40
    assert statuses["aborted"] > 20
    assert replay_decisions(run) is None


def test_a_page_that_stays_is_an_error_of_a_real_server_too(tmp_path):
    with pytest.raises(AccountError, match=r"still holds .* tokens of KV for requests that ended"):
        serve(tmp_path, [], num_reserved=1)
