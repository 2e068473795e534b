"""The host_cache section: its settings, and its errors."""

import json
import re

import pytest

from sim.core.errors import InputError
from sim.latency.kinds.linear import LinearLatency
from sim.latency.wrappers import LoadTimes
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from sim.sglang.cache.settings import HostCacheSettings
from tests.support.scheduler_settings import build_scheduler_config

MODEL = ["model=llama-3.1-8b"]
BYTES_PER_TOKEN = 131_072


def loaded(valid_text, overrides=(), **keys):
    return load_scenario_text(valid_text, [*overrides, f"scheduler.host_cache={json.dumps(keys)}"])


def settings_of(valid_text, **keys):
    return build_scheduler_config(loaded(valid_text, **keys).scenario).host_cache


def times_of(valid_text, *overrides, **keys):
    latency = build(loaded(valid_text, overrides, **keys)).latencies[0]
    return latency._times


def host_settings(capacity_tokens, write_after_uses, *, load_back_threshold_tokens=10, ratio=2.0):
    """Settings at 1,000 ns a token; without a model a state is copied like 100 tokens."""
    return HostCacheSettings(
        capacity_tokens,
        write_after_uses,
        load_back_threshold_tokens,
        1000.0,
        state_tokens=100.0,
        ratio=ratio,
    )


@pytest.mark.parametrize(
    ("keys", "settings"),
    [
        ({}, host_settings(8208, 1)),
        ({"ratio": 0.5}, host_settings(2064, 1, ratio=0.5)),
        (
            {"capacity_tokens": 1000, "load_back_threshold_tokens": 0},
            host_settings(992, 1, load_back_threshold_tokens=0, ratio=1000 / 4096),
        ),
        ({"write_policy": "write_through_selective"}, host_settings(8208, 2)),
        ({"write_policy": "write_back"}, host_settings(8208, None)),
    ],
)
def test_host_cache_capacity_and_policy(valid_text, keys, settings):
    """The pool has 4,096 tokens in pages of 16; twice as much and a page if nothing is said."""
    assert settings_of(valid_text, load_tokens_per_s=1e6, **keys) == settings


@pytest.mark.parametrize(("tp", "num_gb"), [(1, 3), (2, 6)])
def test_host_cache_size_in_bytes_is_that_of_each_gpu(valid_text, tp, num_gb):
    """Whole pages of 16 tokens and one more, as SGLang makes of --hicache-size."""
    overrides = [*MODEL, f"latency={{kind: roofline, tp: {tp}}}", "hardware=h100-sxm"]
    section = loaded(valid_text, overrides, size_gb=3, load_tokens_per_s=1e6).scenario
    found = build_scheduler_config(section).host_cache
    assert found.capacity_tokens == num_gb * 10**9 // BYTES_PER_TOKEN // 16 * 16 + 16


def test_host_cache_absent_is_none(valid_text):
    """And the latency model is the scenario's own."""
    built = build(load_scenario_text(valid_text))
    assert built.scheduler.host_cache is None
    assert isinstance(built.latencies[0], LinearLatency)


def test_host_cache_speed_in_bytes_is_that_of_the_model(valid_text):
    """A GB/s is a byte a nanosecond; a load overlaps layer by layer."""
    times = times_of(valid_text, *MODEL, load_bandwidth_gb_s=64)
    assert times == LoadTimes(BYTES_PER_TOKEN / 64, 32)
    assert times.load_ns(1000) == 2_048_000


def test_host_cache_speed_in_tokens_needs_no_model(valid_text):
    """Without one a step waits for its loads, unless told otherwise."""
    assert times_of(valid_text, load_tokens_per_s=500_000) == LoadTimes(2000.0, 1)
    assert times_of(valid_text, load_tokens_per_s=1e9, overlap_layers=8) == LoadTimes(1.0, 8)
    assert times_of(valid_text, *MODEL, load_tokens_per_s=1e9, overlap_layers=1) == LoadTimes(1.0)


def test_host_cache_recorded_steps_have_their_loads_in_them(valid_text, tmp_path):
    """Nothing is added to what was measured."""
    log = tmp_path / "log.jsonl"
    log.write_text('{"kind":"step","t_start_ns":0,"t_end_ns":5,"host_ns":0}\n')
    latency = f"latency={json.dumps({'kind': 'recorded', 'path': str(log)})}"
    built = build(loaded(valid_text, [latency], load_tokens_per_s=1e6))
    assert not hasattr(built.latencies[0], "_times")


NOT_BOTH = "give one of them, not both"
FAST = {"load_tokens_per_s": 1e6}
REFUSED = [
    ({}, "host_cache: needs load_bandwidth_gb_s or load_tokens_per_s"),
    (FAST | {"load_bandwidth_gb_s": 50},
     f"host_cache: load_bandwidth_gb_s and load_tokens_per_s set the same speed: {NOT_BOTH}"),
    (FAST | {"ratio": 2, "capacity_tokens": 100},
     f"host_cache: ratio and capacity_tokens set the same size: {NOT_BOTH}"),
    (FAST | {"ratio": 2, "size_gb": 100},
     f"host_cache: ratio and size_gb set the same size: {NOT_BOTH}"),
    (FAST | {"size_gb": 1.5}, "host_cache.size_gb: must be a whole number, got 1.5"),
    (FAST | {"size_gb": 2}, "host_cache.size_gb: needs a model whose shape is known"),
    ({"load_bandwidth_gb_s": 50},
     ("host_cache.load_bandwidth_gb_s needs the model, which says how many bytes a token has:"
      " give load_tokens_per_s without one")),
    (FAST | {"capacity_tokens": 8},
     "host_cache.capacity_tokens: makes room for 8 tokens, less than page_size 16"),
    (FAST | {"write_policy": "write_thru"},
     "host_cache.write_policy: unknown value 'write_thru' (did you mean write_through?)"),
    ({"load_tokens_per_s": 0}, "host_cache.load_tokens_per_s: must be at least 1, got 0"),
    (FAST | {"ratios": 2}, "host_cache.ratios: unknown key (did you mean ratio?)"),
]  # fmt: skip


def error_line(text):
    with pytest.raises(InputError) as caught:
        build(load_scenario_text(text))
    return str(caught.value)


@pytest.mark.parametrize(("keys", "reason"), REFUSED)
def test_host_cache_bad_section_is_one_line(valid_text, keys, reason):
    """With the key that is wrong, and a line of the file."""
    message = error_line(f"{valid_text}  host_cache: {json.dumps(keys)}\n")
    assert re.fullmatch(rf"scenario:\d+: scheduler\.{re.escape(reason)}", message)


def test_host_cache_without_a_radix_cache_is_refused(valid_text):
    """There would be nothing to keep."""
    keys = f"  host_cache: {json.dumps(FAST)}\n  disable_radix_cache: true\n"
    assert error_line(valid_text + keys).endswith(
        "host_cache keeps what the radix cache evicts: it does not go with disable_radix_cache"
    )
