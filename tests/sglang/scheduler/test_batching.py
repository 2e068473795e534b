"""Static batching: batches that start and end together."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.sglang.config import SchedulerConfig, StaticSettings
from sim.workload.workload import listed
from tests.support.serve import serve
from tests.support.workloads import scripted

MS = 1_000_000
CONFIG = SchedulerConfig(
    max_total_tokens=100_000,
    static_batching=StaticSettings(batch_size=3, max_wait_ns=50 * MS),
)


def requests(*arrivals_ms, outputs=None):
    """Requests 0, 1, 2, ... that arrive at these times, with outputs of these lengths or 10."""
    outputs = outputs or [10] * len(arrivals_ms)
    return listed(
        [
            scripted(str(i), (i, 20), output=output, arrival_ns=ms * MS)
            for i, (ms, output) in enumerate(zip(arrivals_ms, outputs, strict=True))
        ]
    )


def batches(served):
    """Rids of each prefill step."""
    return [[rid for rid, _, _ in step["prefill"]] for step in served.steps if step["prefill"]]


@pytest.mark.parametrize("overlap", [True, False])
def test_static_batch_starts_when_it_is_full(overlap):
    """The third request starts the batch, long before the first has waited long enough."""
    config = replace(CONFIG, disable_overlap_schedule=not overlap)
    served = serve(requests(0, 5, 7), config)
    assert batches(served) == [["0", "1", "2"]]
    assert served.request("0")["scheduled_ns"] == 7 * MS


@pytest.mark.parametrize("overlap", [True, False])
def test_static_batch_starts_when_its_oldest_has_waited_long_enough(overlap):
    """Two of three start, at that very time, counted from the arrival."""
    config = replace(CONFIG, disable_overlap_schedule=not overlap)
    served = serve(requests(3, 40), config)
    assert batches(served) == [["0", "1"]]
    assert served.request("0")["scheduled_ns"] == 53 * MS


def test_static_batch_without_patience_starts_at_once():
    """With no wait an idle server takes whoever is there."""
    config = replace(CONFIG, static_batching=StaticSettings(batch_size=3, max_wait_ns=0))
    assert batches(serve(requests(0, 1, 2), config)) == [["0"], ["1", "2"]]


@pytest.mark.parametrize("overlap", [True, False])
def test_static_batch_ends_before_the_next_starts(overlap):
    """A short request's place stays empty until the longest is done, though others wait."""
    config = replace(CONFIG, disable_overlap_schedule=not overlap)
    served = serve(requests(0, 0, 0, 1, 1, 1, outputs=[2, 2, 60, 2, 2, 2]), config)
    assert batches(served) == [["0", "1", "2"], ["3", "4", "5"]]
    assert served.request("0")["finish_ns"] < served.request("2")["finish_ns"]
    assert served.request("3")["scheduled_ns"] == served.request("2")["finish_ns"]
    continuous = serve(
        requests(0, 0, 0, 1, 1, 1, outputs=[2, 2, 60, 2, 2, 2]),
        replace(config, static_batching=None),
    )
    assert continuous.request("3")["finish_ns"] < continuous.request("2")["finish_ns"]


def test_static_batch_is_prefilled_in_several_passes():
    """A batch is one batch though its prompts do not fit one pass."""
    config = replace(CONFIG, max_prefill_tokens=50, chunked_prefill_size=-1)
    served = serve(requests(0, 0, 0, 0, 0, 0), config)
    assert batches(served) == [["0", "1"], ["2"], ["3", "4"], ["5"]]
    decoding = [step["n_decode"] for step in served.steps if step["mode"] == "decode"]
    assert set(decoding) == {3}


def test_static_batch_is_smaller_where_memory_is_short():
    """Whoever does not fit waits until the batch is over."""
    config = replace(CONFIG, max_total_tokens=70)
    served = serve(requests(0, 0, 0), config)
    assert batches(served) == [["0", "1"], ["2"]]
    assert served.request("2")["scheduled_ns"] >= served.request("1")["finish_ns"]


@given(
    st.lists(st.tuples(st.integers(0, 80), st.integers(1, 30)), min_size=1, max_size=20),
    st.integers(1, 5),
    st.sampled_from((0, 1, 20, 500)),
    st.booleans(),
)
def test_static_any_traffic_never_mixes_two_batches(traffic, batch_size, wait_ms, overlap):
    """From a batch's first start to its last finish nobody else is started."""
    traffic = sorted(traffic)
    config = replace(
        CONFIG,
        static_batching=StaticSettings(batch_size, wait_ms * MS),
        disable_overlap_schedule=not overlap,
    )
    work = requests(*(ms for ms, _ in traffic), outputs=[output for _, output in traffic])
    served = serve(work, config)
    lives: dict[int, list[int]] = {}
    for i in range(len(traffic)):
        request = served.request(str(i))
        assert request["status"] == "finished"
        lives.setdefault(request["scheduled_ns"], []).append(request["finish_ns"])
    over_ns = 0
    for start_ns, finishes_ns in sorted(lives.items()):
        assert start_ns >= over_ns
        assert len(finishes_ns) <= batch_size
        over_ns = max(finishes_ns)


@pytest.mark.parametrize("overlap", [True, False])
def test_static_batch_is_closed_by_steps_passed_in_one_go(overlap):
    """The step after a prefill is decided before any pass; those that follow pass in vain."""
    config = SchedulerConfig(
        max_total_tokens=256,
        page_size=64,
        disable_radix_cache=True,
        decode_first=True,
        prefill_max_requests=1,
        max_running_requests=2,
        disable_overlap_schedule=not overlap,
        static_batching=StaticSettings(batch_size=3, max_wait_ns=0),
        clip_max_new_tokens=4,
    )
    work = listed(
        [
            scripted(str(i), (i, prompt), output=output, ignore_eos=True)
            for i, (prompt, output) in enumerate([(1, 4), (1, 40), (1, 1)])
        ]
    )
    assert serve(work, config).text == serve(work, config, fast_forward=False).text
