"""What host memory does for a request that comes back, worked out by hand."""

import pytest

from sim.latency.wrappers import LoadingLatency, LoadTimes
from sim.sglang.cache.settings import HostCacheSettings
from sim.sglang.config import SchedulerConfig
from sim.workload.workload import listed
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

MS = 1_000_000
# b does not fit beside the cached KV of a. c begins with all of a's prompt.
COMING_BACK = listed(
    [
        scripted("a", (1, 100), output=1),
        scripted("b", (2, 150), output=1, arrival_ns=20 * MS),
        scripted("c", (1, 100), (3, 20), output=1, arrival_ns=40 * MS),
    ]
)


def serve_coming_back(num_parts=1, overlap=False, **settings):
    """A step takes 5 ms, and 0.04 ms for each new token; loading a token back takes 0.02 ms."""
    model = linear_latency(per_decode_request_s=0, per_context_token_s=0)
    config = SchedulerConfig(max_total_tokens=200, disable_overlap_schedule=not overlap, **settings)
    loading = LoadingLatency(model, LoadTimes(20_000, num_parts))
    return serve(COMING_BACK, config, [loading])


def ttft_ns(served, rid):
    row = served.request(rid)
    return row["first_token_ns"] - row["arrival_ns"]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("uses", [1, None], ids=["write-through", "write-back"])
def test_loading_back_takes_its_time_from_the_step(uses, overlap):
    """100 tokens come back in 2 ms, 20 are computed in 5.8 ms: 7.8 ms to the first token."""
    served = serve_coming_back(overlap=overlap, host_cache=HostCacheSettings(1000, uses, 10))
    assert [ttft_ns(served, rid) for rid in "abc"] == [9 * MS, 11 * MS, 7_800_000]
    step = served.steps[-1]
    assert (step["prefill"], step["loaded"]) == ([["c", 100, 20]], [["c", 100]])
    assert step["t_end_ns"] - step["t_start_ns"] == 7_800_000
    row = served.request("c")
    assert (row["cached_tokens"], row["host_cached_tokens"]) == (100, 100)


def test_loading_back_by_layer_overlaps_with_the_step():
    """In four parts: the step can begin after 0.5 ms and is never held up again."""
    served = serve_coming_back(num_parts=4, host_cache=HostCacheSettings(1000, 1, 10))
    assert ttft_ns(served, "c") == 6_300_000


def test_without_host_memory_everything_is_computed_again():
    """5 + 120 x 0.04 ms; and the log says nothing of host memory."""
    served = serve_coming_back()
    assert ttft_ns(served, "c") == 9_800_000
    assert "host_used" not in served.text
    assert "host_cached" not in served.text
    assert "loaded" not in served.text


@pytest.mark.parametrize(
    "settings",
    [HostCacheSettings(1000, 1, 101), HostCacheSettings(99, 1, 10), HostCacheSettings(1000, 2, 10)],
    ids=["below the threshold", "no room for the copy", "used only once"],
)
def test_host_memory_that_cannot_help_costs_nothing(settings):
    """Computed again, in the same time as without it."""
    served = serve_coming_back(host_cache=settings)
    assert ttft_ns(served, "c") == 9_800_000
    assert served.request("c")["cached_tokens"] == 0
