"""What the host adds to steps and requests."""

import json

import pytest

from sim.core.errors import InputError
from sim.latency.host import HostSection, host_preset, host_presets
from sim.latency.hosted import HostedLatency, HostedServer
from sim.latency.model import StepTime
from sim.scenario.load import load_scenario_text
from sim.testing.contracts import LatencyModelContract
from sim.vllm.config import VllmConfig
from sim.workload.workload import listed
from tests.support.latency_steps import decode_step, extend_step
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

COSTS = HostSection(
    step_s=1e-3, row_s=1e-5, step_gap_s=2e-4, row_gap_s=3e-6, layer_gap_s=1e-5, layer_launch_s=1e-3
)


def hosted(costs=COSTS, graph_tokens=0, **seconds):
    return HostedLatency(linear_latency(**seconds), costs, HostedServer(32, 24, graph_tokens))


class TestHostedLatency(LatencyModelContract):
    """A linear model with a host's costs."""

    @pytest.fixture
    def make_model(self):
        return hosted


def test_host_time_is_beside_the_device_and_gaps_are_on_it():
    """Ten decode rows: 1.1 ms of host time; gaps of 0.2 ms, 32 layers and ten rows."""
    plain = linear_latency().step_ns(decode_step(10, 100))
    assert hosted().step_ns(decode_step(10, 100)) == StepTime(
        plain.device_ns + 200_000 + 32 * 10_000 + 10 * 3_000, plain.host_ns + 1_100_000
    )


@pytest.mark.parametrize(("step_s", "expected_ms"), [(0.001, 32.0), (0.05, 50.4)])
def test_host_launches_prefill_kernels_one_by_one(step_s, expected_ms):
    """A short prefill takes as long as the launches of its layers; a long one hides them."""
    costs = HostSection(layer_launch_s=1e-3)
    model = hosted(costs, step_s=step_s, per_prefill_token_s=4e-5, per_context_token_s=0)
    assert model.step_ns(extend_step((0, 10))).device_ns / 1e6 == pytest.approx(expected_ms)


def test_host_launches_no_kernels_of_captured_graphs():
    """A prefill of ten tokens runs in graphs, one of eleven does not."""
    model = hosted(HostSection(layer_launch_s=1e-3), graph_tokens=10, step_s=1e-3)
    times_ms = [model.step_ns(extend_step((0, tokens))).device_ns / 1e6 for tokens in (10, 11)]
    assert times_ms[0] < 2
    assert times_ms[1] == 32


def test_layers_with_linear_or_sparse_attention_cost_more():
    """24 of the 32 layers have it: gaps of 24 x 2 us, and launches of 32 + 24 / 2 ms."""
    costs = HostSection(
        layer_launch_s=1e-3, subquadratic_layer_gap_s=2e-6, subquadratic_layer_launch_s=5e-4
    )
    plain, model = linear_latency(), hosted(costs)
    decode = decode_step(10, 100)
    assert model.step_ns(decode).device_ns == plain.step_ns(decode).device_ns + 48_000
    assert model.step_ns(extend_step((0, 10))).device_ns == 44_048_000


def test_new_tokens_of_a_prefill_step_cost_more_on_every_rank():
    """2 us for each of 400 tokens; for all 900 of a group, on a rank that decodes beside, too."""
    plain, model = linear_latency(), hosted(HostSection(prefill_token_gap_s=2e-6))
    for step, num_tokens in (
        (extend_step((0, 300), (0, 100)), 400),
        (extend_step((0, 300)).in_group(900, 600, prefills=True), 900),
        (decode_step(10, 100).in_group(900, 600, prefills=True), 900),
        (decode_step(10, 100).in_group(80, 10, prefills=False), 0),
        (decode_step(10, 100), 0),
    ):
        extra_ns = model.step_ns(step).device_ns - plain.step_ns(step).device_ns
        assert extra_ns == 2_000 * num_tokens


def test_cold_start_lengthens_the_first_large_prefill():
    """Not a smaller one before it, and not the next large one; asking alone changes nothing."""
    model = hosted(HostSection(cold_start_s=5, cold_start_tokens=1_000))
    plain = linear_latency()
    small, large = extend_step((0, 999)), extend_step((0, 600), (0, 400))
    extra_ns = []
    for step in (small, large, large):
        assert model.step_ns(step) == model.step_ns(step)
        extra_ns.append(model.step_ns(step).device_ns - plain.step_ns(step).device_ns)
        model.consume(step, 1)
    assert extra_ns == [0, 5_000_000_000, 0]


def test_host_presets_are_sections_and_an_unknown_one_is_named():
    """One line that lists those there are."""
    assert {"vllm-async", "vllm-sync"} < set(host_presets())
    with pytest.raises(InputError, match=r"host: unknown host preset 'vllm' .* vllm-async"):
        host_preset("vllm")


@pytest.mark.parametrize(
    ("host", "changes"),
    [
        ({"preset": "vllm-async", "row_gap_s": 0.5}, ()),
        ("vllm-async", ("host.row_gap_s=0.5",)),
        ({"preset": "vllm-sync", "row_gap_s": 0.5}, ("host.preset=vllm-async",)),
    ],
)
def test_a_single_cost_of_a_preset_is_replaced(host, changes):
    one_request = {
        "kind": "synthetic",
        "num_requests": 1,
        "arrivals": {"kind": "poisson", "rate_rps": 1},
        "prompt_tokens": {"kind": "constant", "value": 10},
        "output_tokens": {"kind": "constant", "value": 1},
    }
    scenario = {
        "name": "t", "model": "llama-3.1-8b", "hardware": "h100-sxm", "host": host,
        "latency": {"kind": "roofline"}, "workload": one_request, "scheduler": {"family": "vllm"},
    }  # fmt: skip
    loaded = load_scenario_text(json.dumps(scenario), changes)
    expected = host_preset("vllm-async").model_copy(update={"row_gap_s": 0.5})
    assert loaded.scenario.host == expected


def first_tokens_ms(host, num_front_ends=1):
    """When three requests that arrive together get their first token; each step takes 10 ms."""
    requests = [scripted(f"r{i}", (i, 100), output=1) for i in range(3)]
    latency = linear_latency(
        step_s=0.01, per_prefill_token_s=0, per_decode_request_s=0, per_context_token_s=0
    )
    config = VllmConfig(async_scheduling=False)
    how = {"host": host, "num_front_ends": num_front_ends}
    log = serve(listed(requests), config, [latency], **how).log
    return (log.requests.first_token_ns / 1e6).tolist()


def test_front_end_prepares_one_request_after_another():
    """After 2, 4 and 6 ms; the first runs alone, the others in the step after it."""
    assert first_tokens_ms(None) == [10, 10, 10]
    each_takes_2_ms = HostSection(request_s=0.001, prompt_token_s=1e-5)
    assert first_tokens_ms(each_takes_2_ms) == [12, 22, 22]
    # Two processes: after 2, 2 and 4 ms. Three: all after 2 ms.
    assert first_tokens_ms(each_takes_2_ms, num_front_ends=2) == [12, 12, 22]
    assert first_tokens_ms(each_takes_2_ms, num_front_ends=3) == [12, 12, 12]


def test_front_end_delays_every_request_alike():
    """By 5 ms: they do not wait for each other."""
    assert first_tokens_ms(HostSection(front_end_s=0.005)) == [15, 15, 15]
