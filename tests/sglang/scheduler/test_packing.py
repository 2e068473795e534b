"""Admission `pack`: which waiting requests a pass is offered."""

from dataclasses import replace

import pytest

from sim.sglang.config import PackSettings, SchedulerConfig
from sim.sglang.scheduler.waiting.fairness import FairnessT
from sim.workload.workload import listed
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

MS = 1_000_000
PACK = PackSettings(lookahead=64, force_fifo_every=100, counts_cached=True)
CONFIG = SchedulerConfig(
    page_size=1,
    max_total_tokens=100_000,
    chunked_prefill_size=-1,
    max_prefill_tokens=256,
    max_running_requests=64,
    disable_radix_cache=True,
    disable_overlap_schedule=True,
    admission=PACK,
)


def workload(*prompt_lens):
    """Requests 0, 1, 2, ... at once, with prompts of these lengths."""
    return listed([scripted(str(i), (i, n), output=4) for i, n in enumerate(prompt_lens)])


def passes(work, config):
    """Rids of each prefill step."""
    steps = serve(work, config).steps
    return [[rid for rid, _, _ in step["prefill"]] for step in steps if step["prefill"]]


def test_pack_takes_the_cheapest_that_fit_in_order_of_the_queue():
    """200 + 40 + 10 tokens fit 256; the 250 before them waits for a pass of its own."""
    assert passes(workload(250, 200, 40, 10), CONFIG) == [["1", "2", "3"], ["0"]]


def test_pack_whole_queue_stops_at_the_first_that_does_not_fit():
    """Without packing the same requests take their turns."""
    config = replace(CONFIG, admission=None)
    assert passes(workload(250, 200, 40, 10), config) == [["0"], ["1", "2", "3"]]


def test_pack_takes_the_head_alone_when_nothing_fits():
    """Prompts above the budget go one by one, in order."""
    assert passes(workload(600, 300, 500), CONFIG) == [["0"], ["1"], ["2"]]


def test_pack_looks_no_further_than_told():
    """The third request is cheap, but out of sight."""
    config = replace(CONFIG, admission=replace(PACK, lookahead=2))
    assert passes(workload(300, 250, 5), config) == [["1"], ["2"], ["0"]]


def test_pack_takes_no_more_than_there_are_slots():
    """Of many that fit, the cheapest ones."""
    config = replace(CONFIG, max_running_requests=2)
    assert passes(workload(30, 20, 10, 25), config)[0] == ["1", "2"]


def test_pack_every_so_many_passes_goes_by_the_queue():
    """The long prompt at the head is passed over once, not twice."""
    requests = [scripted("long", (1, 400), output=2)]
    requests += [
        scripted(f"s{i}", (10 + i, 200), output=2, arrival_ns=i * MS // 10) for i in range(8)
    ]
    config = replace(CONFIG, admission=replace(PACK, force_fifo_every=2))
    order = passes(listed(requests), config)
    assert order[:3] == [["s0"], ["long"], ["s1"]]


def test_pack_never_skips_an_aged_request():
    """FAIRNESS_T comes before the budget."""
    requests = [scripted("long", (1, 400), output=2)]
    requests += [
        scripted(f"s{i}", (10 + i, 200), output=2, arrival_ns=i * 10 * MS) for i in range(12)
    ]
    config = replace(CONFIG, fairness=FairnessT(30 * MS), max_running_requests=1)
    order = [rid for rids in passes(listed(requests), config) for rid in rids]
    assert 0 < order.index("long") < 6
    alone = [
        rid for rids in passes(listed(requests), replace(config, fairness=None)) for rid in rids
    ]
    assert alone[-1] == "long"


def test_pack_by_uncached_tokens_sees_what_is_cached():
    """A long prompt whose beginning is cached is cheap; by prompt tokens it is not."""
    requests = [
        scripted("first", (1, 240), output=2),
        scripted("new", (2, 100), output=2, arrival_ns=100 * MS),
        scripted("known", (1, 240), (3, 20), output=2, arrival_ns=100 * MS),
    ]
    for counts_cached, order in ((True, [["new"], ["known"]]), (False, [["new", "known"]])):
        config = replace(
            CONFIG,
            disable_radix_cache=False,
            admission=replace(PACK, counts_cached=counts_cached),
        )
        assert passes(listed(requests), config)[1:] == order


@pytest.mark.parametrize("overlap", [True, False])
def test_decode_first_lets_running_requests_decode_between_prefills(overlap):
    """Prefill steps are kept apart by decode steps while somebody runs."""
    config = replace(
        CONFIG, admission=None, decode_first=True, disable_overlap_schedule=not overlap
    )
    work = workload(200, 200, 200, 200)
    modes = [step["mode"] for step in serve(work, config, [linear_latency()]).steps]
    assert "extend extend" not in " ".join(modes)
    usual = serve(work, replace(config, decode_first=False), [linear_latency()]).steps
    assert [step["mode"] for step in usual][:4] == ["extend"] * 4


@pytest.mark.parametrize("overlap", [True, False])
def test_decode_first_steps_passed_in_one_go_see_what_a_pass_changes(overlap):
    """With preemption a pass takes the full flag back; the step that went first made none."""
    config = SchedulerConfig(
        max_total_tokens=256,
        page_size=64,
        max_prefill_tokens=32,
        max_running_requests=2,
        disable_radix_cache=True,
        enable_priority_scheduling=True,
        decode_first=True,
        disable_overlap_schedule=not overlap,
    )
    work = listed(
        [
            scripted("a", (1, 1), output=40, ignore_eos=True),
            scripted("b", (2, 1), output=30, ignore_eos=True),
            scripted("c", (3, 65), output=3, arrival_ns=4_000_000),
        ]
    )
    assert serve(work, config).text == serve(work, config, fast_forward=False).text
