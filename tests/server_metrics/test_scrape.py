"""One scrape of `/metrics`: which numbers it has, of both engines, and what is left out."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.api.metrics import EngineLoad, Metrics
from sim.families import FAMILIES, known_metrics
from sim.server_metrics.scrape import Histogram, read_samples, read_scrape

SGLANG = """\
# HELP sglang:num_running_reqs The number of running requests.
sglang:num_running_reqs{model_name="m",priority="",tp_rank="0",pp_rank="0",dp_rank="0"} 3.0
sglang:num_running_reqs{model_name="m",priority="",tp_rank="0",pp_rank="0",dp_rank="1"} 4.0
sglang:num_running_reqs{model_name="m",priority="",tp_rank="1",pp_rank="0",dp_rank="0"} 3.0
sglang:num_running_reqs{model_name="m",priority="7",tp_rank="0",pp_rank="0",dp_rank="0"} 1.0
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 2.0
sglang:token_usage{model_name="m",dp_rank="0"} 0.2
sglang:token_usage{model_name="m",dp_rank="1"} 0.4
sglang:max_total_num_tokens{model_name="m"} 65536.0
sglang:num_requests_total{is_streaming="true",model_name="m"} 10.0
sglang:num_requests_total{is_streaming="false",model_name="m"} 2.0
sglang:cached_tokens_total{cache_source="device",model_name="m"} 30.0
sglang:cached_tokens_total{cache_source="host",model_name="m"} 12.0
sglang:time_to_first_token_seconds_bucket{le="0.1",model_name="m"} 5.0
sglang:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 8.0
sglang:time_to_first_token_seconds_sum{model_name="m"} 2.5
sglang:inter_token_latency_seconds_bucket{le="+Inf",model_name="m"} 90.0
sglang:inter_token_latency_seconds_sum{model_name="m"} 0.9
"""


def test_of_sglang_ranks_are_added_up_once():
    scrape = read_scrape(SGLANG, 5, known_metrics())
    assert scrape.family == "sglang"
    assert scrape.values["running"] == 7  # two DP ranks; not a further TP rank, nor a priority
    assert scrape.values["waiting"] == 2
    assert math.isclose(scrape.values["kv_usage"], 0.3)  # a share, of which the mean counts
    assert scrape.values["requests"] == 12
    assert scrape.values["cached_tokens"] == 42
    assert scrape.values["pool_tokens"] == 65_536
    assert scrape.histograms["ttft_s"] == Histogram((0.1, math.inf), (5, 8), 2.5)
    assert not scrape.missing


def test_of_vllm_the_pool_is_in_the_labels_of_its_settings():
    text = """\
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="2400"} 1.0
vllm:num_requests_running{engine="0",model_name="m"} 1.0
vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.5
"""
    scrape = read_scrape(text, 5, known_metrics())
    assert scrape.values["pool_tokens"] == 38_400
    assert scrape.info == {"block_size": "16", "num_gpu_blocks": "2400"}
    assert scrape.values["kv_usage"] == 0.5  # by the name that older versions have
    assert scrape.missing == ["waiting", "requests", "ttft_s", "itl_s"]


def test_what_a_simulated_server_shows_is_complete():
    for family in FAMILIES.values():
        metrics = Metrics(family.metric_names(), "tiny", lambda: [EngineLoad(1, 2, 0.25)])
        metrics.first_token(0.2)
        metrics.tokens(2, 0.1)
        scrape = read_scrape(metrics.text().decode(), 5, known_metrics())
        assert scrape.family == family.name
        assert not scrape.missing
        assert scrape.values["waiting"] == 2
        assert scrape.histograms["itl_s"].num == 2
        assert math.isclose(scrape.histograms["itl_s"].total, 0.1)


def test_another_program_is_of_no_family():
    assert (
        read_scrape("go_goroutines 8\nprocess_cpu_seconds_total 1.5\n", 5, known_metrics()) is None
    )
    assert read_scrape("<html><body>hello</body></html>", 5, known_metrics()) is None


def test_lines_that_are_no_samples_are_left_out():
    lines = [
        "a 1",
        'a{x="1"} NaN',
        'a{x="2"} +Inf',
        "a one",
        "a",
        'a{x="3" 1',
        "b 1",
        "a 2 1795772084625",
    ]
    assert [sample.value for sample in read_samples(lines, {"a"})["a"]] == [1, 2]


@given(st.text(max_size=300))
def test_any_text_is_read_or_left_out(text):
    read_scrape(text, 5, known_metrics())
    read_scrape(f"vllm:num_requests_running{text}", 5, known_metrics())


def test_what_a_histogram_has_since_an_earlier_one():
    now, before = Histogram((1, math.inf), (5, 8), 20), Histogram((1, math.inf), (2, 3), 6)
    since = now.since(before)
    assert (since.counts, since.total, since.num) == ((3, 5), 14, 5)
    assert since.above(1) == (2, pytest.approx(2 * math.sqrt(2)))
    assert since.above(0.5) == since.above(1)  # the next bound
    assert since.above(2) == (0, 0)
