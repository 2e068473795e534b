"""The real package, if it is installed: the figures in docs/explanation/latency.md."""

from dataclasses import replace
from pathlib import Path

import pytest

from sim.core.errors import InputError
from sim.latency.aiconfigurator.model import AiconfiguratorLatency
from sim.latency.aiconfigurator.package import open_database
from sim.latency.shape_files import load_model_shape, model_table
from sim.testing.contracts import LatencyModelContract
from sim.testing.latency_steps import decode_step, extend_step

EngineHandle = pytest.importorskip(
    "aiconfigurator_core.sdk.engine",
    reason="aiconfigurator-core is not installed: pip install 'servetwin[aiconfigurator]'",
).EngineHandle


class TestMeasuredLatency(LatencyModelContract):
    """Every model of the packaged table, on an H200."""

    @pytest.fixture(params=sorted(model_table()))
    def make_model(self, request):
        model = load_model_shape(request.param, Path())
        return lambda: AiconfiguratorLatency(model, open_database("h200_sxm", "sglang", None))


def decode(rows, context):
    return decode_step(rows, rows * context)


def prefill(rows, new, cached=0):
    return extend_step(*[(cached, new)] * rows)


def llama(system="h200_sxm", version="0.5.14"):
    model = load_model_shape("llama-3.1-8b", Path())
    return AiconfiguratorLatency(model, open_database(system, "sglang", version))


@pytest.mark.parametrize(
    ("step", "milliseconds"),
    [
        (decode(1, 1_024), 4.867),
        (decode(16, 1_024), 5.354),
        (decode(64, 1_024), 7.235),
        (prefill(1, 512), 13.763),
        (prefill(1, 2_048), 44.725),
    ],
)
def test_measured_h200_steps_are_the_documented_ones(step, milliseconds):
    """Llama-3.1-8B with SGLang 0.5.14's kernels."""
    assert llama().step_ns(step).device_ns / 1e6 == pytest.approx(milliseconds, abs=0.001)


@pytest.mark.parametrize("step", [prefill(1, 2_048), prefill(4, 200, 1_000)])
def test_measured_prefill_is_the_packages_own(step):
    """What the package says of the whole model, put together by itself."""
    handle = EngineHandle.compile(
        "meta-llama/Meta-Llama-3.1-8B", "h200_sxm", "sglang", backend_version="0.5.14"
    )
    rows = step.num_prefill_rows
    prompt = step.num_context_tokens // rows
    cached = prompt - step.num_prefill_tokens // rows
    theirs_ms, _, _ = handle.run_static(
        batch_size=rows, isl=prompt, osl=1, prefix=cached, mode="static_ctx"
    )
    assert llama().step_ns(step).device_ns / 1e6 == pytest.approx(theirs_ms, abs=2e-6)


@pytest.mark.parametrize(("rows", "prompt"), [(1, 1_023), (64, 4_095), (100, 700)])
def test_measured_decode_is_the_packages_own(rows, prompt):
    """The curve through the knots is within 0.1 % of the package's own interpolation."""
    handle = EngineHandle.compile(
        "meta-llama/Meta-Llama-3.1-8B", "h200_sxm", "sglang", backend_version="0.5.14"
    )
    theirs_ms = handle.decode_step_latency(rows, prompt, 2)
    ours_ms = llama().step_ns(decode(rows, prompt + 1)).device_ns / 1e6
    assert ours_ms == pytest.approx(theirs_ms, rel=1e-3)


def test_measured_h100_decodes_slower_than_h200():
    """By about the ratio of their memory bandwidths, 4.8 to 3.35."""
    step = decode(64, 4_096)
    ratio = llama("h100_sxm").step_ns(step).device_ns / llama().step_ns(step).device_ns
    assert 1.2 < ratio < 1.6


def test_measured_head_width_without_data_is_refused():
    """Heads of width 80 were not measured; the widths that were are named."""
    model = load_model_shape("llama-3.1-8b", Path())
    odd = replace(model, head_dim=80)
    with pytest.raises(InputError, match=r"heads of width 80; it has heads of width 64, 128, "):
        AiconfiguratorLatency(odd, open_database("h200_sxm", "sglang", None))
