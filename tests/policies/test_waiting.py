"""Policies that go by the time that requests have waited, and by the work that they are."""

from importlib import import_module

import numpy as np
import pytest

from sim.sglang.config import SchedulerConfig
from tests.policies.conftest import SHIPPED

LENGTHS = SHIPPED / "long-and-short.yaml"


@pytest.fixture
def policy():
    """An instance of a shipped class."""

    def make(name, **settings):
        module, _, cls = name.partition(":")
        return getattr(import_module(module), cls)(SchedulerConfig(), **settings)

    return make


def test_hrrn_short_work_goes_first_until_long_work_has_waited_in_proportion(
    policy, make_request, order
):
    """Ratios at 100 ms: 100 ms / 10 ms for the long prompt, 9 ms / 1 ms for the short one."""
    hrrn = policy("hrrn:HighestResponseRatio", prompt_token_us=100)
    long, short = make_request("long", prompt=100), make_request("short", arrival_ms=91)
    assert order(hrrn, [short, long], now_ms=100) == ["long", "short"]
    assert order(hrrn, [long, short], now_ms=110) == ["short", "long"]


def test_hrrn_predicted_outputs_count_as_work(policy, make_request, order):
    hrrn = policy("hrrn:HighestResponseRatio", prompt_token_us=1, output_token_us=100)
    requests = [make_request("long", predicted=900), make_request("short", predicted=9)]
    assert order(hrrn, requests, now_ms=10) == ["short", "long"]


def test_shortest_prompt_is_passed_over_for_the_stated_time_at_most(policy, make_request, order):
    """0.5 / 0.5 x 5 s: then even an endless prompt goes before an empty one that comes now."""
    aging = policy("shortest_prompt:ShortestPromptAging")
    long = make_request("long", prompt=10**7)
    for arrival_ms, expected in ((4_900, ["short", "long"]), (5_000, ["long", "short"])):
        short = make_request("short", arrival_ms=arrival_ms, prompt=1)
        assert order(aging, [short, long], now_ms=9_000) == expected


def test_earliest_deadline_goes_by_the_promise_to_each_tenant(policy, make_request, order):
    edf = policy("deadlines:EarliestDeadlineFirst", ttft_ms=1000, tenants={"chat": 200})
    requests = [
        make_request("batch", tenant="batch"),
        make_request("chat", arrival_ms=700, tenant="chat"),
        make_request("late-chat", arrival_ms=900, tenant="chat"),
    ]
    assert order(edf, requests, now_ms=950) == ["chat", "batch", "late-chat"]


def test_late_last_serves_those_that_can_still_be_in_time(policy, make_request, order):
    edf = policy("deadlines:EarliestDeadlineFirst", ttft_ms=100, late_last=True)
    requests = [make_request("late"), make_request("in-time", arrival_ms=150)]
    assert order(edf, requests, now_ms=90) == ["late", "in-time"]
    assert order(edf, requests, now_ms=180) == ["in-time", "late"]


def test_least_slack_counts_the_work_that_is_not_cached(policy, make_request, order):
    """Deadlines are 1,000 and 1,050 ms; the prompts take 10 and 100 ms, or 10 if it is cached."""
    slack = policy("deadlines:LeastSlack", prompt_token_us=100)
    requests = [make_request("short", prompt=100), make_request("long", arrival_ms=50, prompt=1000)]
    assert order(slack, requests, now_ms=60) == ["long", "short"]
    requests[1].matched_len = 900
    assert order(slack, requests, now_ms=60) == ["short", "long"]


def waits_s(log, tenant):
    requests = log.requests
    mine = np.array(requests.tenant) == tenant
    return ((requests.scheduled_ns - requests.arrival_ns) / 1e9)[mine]


def test_shortest_first_starves_long_prompts_and_hrrn_does_not(run):
    """As long as short prompts keep coming, shortest first hardly serves a long one."""
    shortest, by_length = run(LENGTHS, "scheduler.schedule_policy=shortest-prefill-first")
    ratio, by_ratio = run(LENGTHS, "scheduler.schedule_policy=hrrn:HighestResponseRatio")
    _, by_arrival = run(LENGTHS, "scheduler.schedule_policy=fcfs")
    assert waits_s(ratio, "long").max() < 0.6 * waits_s(shortest, "long").max()
    means = [each["tenants"]["short"]["mean_ttft_ms"] for each in (by_length, by_ratio, by_arrival)]
    assert means[0] < means[1] < means[2]
