"""The published tables, against step times that their publishers composed of them."""

from itertools import pairwise
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from sim.core.errors import InputError
from sim.latency.config import LatencyConfig
from sim.latency.kinds.build import build_latency
from sim.latency.layers.vidur import read_vidur
from tests.support.latency_steps import decode_step, extend_step, mixed_step

SERVING_SIM = Path(__file__).parents[3] / "data/layers/rtxpro6000-llama-3.1-8b"
A800 = "vidur-format-llama-2-7b/a800"


def layers_model(path, **keys):
    section = {"kind": "layers", "path": str(path)} | keys
    config = TypeAdapter(LatencyConfig).validate_python(section)
    return build_latency(config, model=None, hardware=None, base_dir=Path())


@pytest.fixture(scope="module")
def shared_model(shared_dir):
    """Builds a model over one of the profiles beside the checkout."""
    return lambda path, **keys: layers_model(shared_dir / "profiles" / path, **keys)


def milliseconds(model, step):
    return model.step_ns(step).device_ns / 1e6


@pytest.mark.parametrize(
    ("step", "composed_ms"),
    [
        (decode_step(1, 1024), 11.4),
        (decode_step(16, 16 * 1024), 12.8),
        (decode_step(64, 64 * 1024), 18.8),
        (decode_step(128, 128 * 1024), 25.3),
        (extend_step((0, 512)), 23.7),
        (extend_step((0, 1024)), 42.4),
        (extend_step((0, 2048)), 83.0),
    ],
)
def test_serving_sim_profile_gives_its_composed_times(step, composed_ms):
    """Llama-3.1-8B on an RTX PRO 6000, to what a figure of three digits leaves."""
    model = layers_model(SERVING_SIM)
    assert milliseconds(model, step) == pytest.approx(composed_ms, abs=0.06)


def test_serving_sim_profile_has_no_dips_where_sweeps_interleave():
    """Longer chunks beside 64 rows never cost less than a step of 32 tokens fewer by over 2 %."""
    model = layers_model(SERVING_SIM)
    times = [
        milliseconds(model, mixed_step(((0, chunk),), 64, 64 * 1025))
        for chunk in range(16, 1985, 32)
    ]
    assert all(later > 0.98 * earlier for earlier, later in pairwise(times))


def test_serving_sim_profile_goes_on_beyond_its_tokens():
    """A prefill of 8,192 tokens costs at least four of 2,048; the run is told of it."""
    model = layers_model(SERVING_SIM)
    step = extend_step((0, 8192))
    assert milliseconds(model, step) > 4 * 83.0
    model.consume(step, 1)
    assert "tokens of a step up to 8,192, measured up to 2,048" in str(model.left_range())


@pytest.mark.parametrize(
    ("tokens", "composed_ms"), [(8, 9.4), (64, 10.1), (1024, 72.9), (2048, 122.7)]
)
def test_shared_vidur_profile_gives_its_composed_times(shared_dir, tokens, composed_ms):
    """Llama-2-7B on an A800, everything in 32 layers but attention.

    2,048 tokens were measured twice, and differ by 2 %: ours is their median.
    """
    times = read_vidur(shared_dir / "profiles" / A800, tp=1)
    assert 32 * times.layer.at(tokens) == pytest.approx(composed_ms, rel=0.01)


def test_shared_vidur_profile_composes_steps(shared_model):
    """Attention of 64 rows of 1,024 tokens takes 0.63 ms a layer, beside 10.1 ms in all."""
    model = shared_model(A800, num_layers=32)
    decode_ms = milliseconds(model, decode_step(64, 64 * 1025))
    assert decode_ms == pytest.approx(10.1 + 32 * 0.63, rel=0.01)


def test_shared_vidur_profile_without_its_attention_is_refused(shared_model):
    """The H100's has half of what is needed."""
    with pytest.raises(InputError, match=r"h100/attention.csv: no such file, plain or \.gz"):
        shared_model("vidur-format-llama-2-7b/h100", num_layers=32)


@pytest.mark.parametrize(
    ("hardware", "tp", "step", "measured_ms"),
    [
        ("h100-80gb", 4, extend_step((0, 512)), 59.6),
        ("h100-80gb", 4, extend_step((0, 8192)), 953.6),
        ("h100-80gb", 4, extend_step(*[(0, 512)] * 16), 874.3),
        ("h100-80gb", 4, decode_step(1, 576), 29.7),
        ("h100-80gb", 4, decode_step(64, 64 * 576), 52.4),
        ("h100-80gb", 8, decode_step(8, 8 * 576), 32.5),
    ],
)
def test_shared_splitwise_table_gives_its_measured_times(
    shared_model, hardware, tp, step, measured_ms
):
    """Llama-2-70B on H100s: medians of the table's repeats."""
    keys = {"table_model": "llama2-70b", "table_hardware": hardware, "tp": tp}
    model = shared_model("splitwise-perf-model", **keys)
    assert milliseconds(model, step) == pytest.approx(measured_ms, abs=0.06)
