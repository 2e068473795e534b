"""The real server on a made-up device that waits for its launches, and the twin of that run."""

from collections import Counter

import pytest

from calibrate.dataset import load_dataset
from calibrate.fit import fit_profile
from calibrate.stages import replay_decisions, simulate_profile, simulate_recorded
from calibrate.step_times import measured_times
from sim.core.errors import AccountError
from sim.metrics.summary import summarise
from sim.scenario.load import load_scenario_text
from tests.support import made_up_device
from tests.support.made_up_device import US

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


@pytest.fixture(params=["overlap", "normal"])
def run(request, tmp_path):
    """The log of such a run, read back."""
    off = "false" if request.param == "overlap" else "true"
    return serve(tmp_path, [f"scheduler.disable_overlap_schedule={off}"])


def serve(tmp_path, options, num_reserved=0):
    """Serve the scenario; returns its log, read back."""
    loaded = load_scenario_text(SCENARIO, options)
    return made_up_device.serve(tmp_path / "run.jsonl", loaded, num_reserved=num_reserved)


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
