"""Past-future admission: what it foresees, and what that saves."""

from importlib import import_module

import pytest

from sim.core.request import Status
from sim.sglang.config import SchedulerConfig
from tests.policies.conftest import SHIPPED

ANSWERS = SHIPPED / "long-answers.yaml"


@pytest.fixture
def past_future():
    """An admission without a reserve, of a pool of some tokens."""

    def make(pool_tokens):
        cls = import_module("past_future").PastFuture
        return cls(SchedulerConfig(max_total_tokens=pool_tokens), reserve_pct=0)

    return make


@pytest.mark.parametrize(
    ("rows", "peak"),
    [
        ([(5, 10)], 15),
        # Both grow for 5 steps; then one ends with 15 tokens, and the other grows for 5 more.
        ([(5, 10), (10, 10)], 30),
        # The short row ends at once, and the long one then needs more than both did.
        ([(1, 2), (50, 10)], 60),
    ],
)
def test_peak_is_just_before_a_row_ends(rows, peak):
    assert import_module("past_future").peak_tokens(rows) == peak


def test_a_request_is_foreseen_as_long_as_past_ones(past_future, make_request):
    """Prompts of 10 and limits of 10 tokens: without a past 20 tokens a request, then 12."""
    admission = past_future(100)
    waiting = [make_request(f"r{i}") for i in range(10)]
    first = admission.candidates(waiting, 10)
    assert len(first) == 5
    for request in first:
        request.scheduled_ns, request.num_generated, request.status = 0, 2, Status.FINISHED
    assert (
        len(admission.candidates(waiting[5:] + [make_request(f"s{i}") for i in range(9)], 20)) == 8
    )


def test_nothing_is_admitted_while_what_runs_will_need_the_memory(past_future, make_request):
    """The row holds 11 tokens and may grow to 20; another would need 20 at the same time."""
    admission = past_future(35)
    waiting = [make_request("runs"), make_request("waits")]
    assert admission.candidates(waiting, 2) == waiting[:1]
    waiting[0].scheduled_ns, waiting[0].num_generated = 0, 1
    waiting[0].status = Status.RUNNING
    assert admission.candidates(waiting[1:], 1) == []
    waiting[0].status = Status.FINISHED
    assert admission.candidates(waiting[1:], 1) == waiting[1:]


def test_past_future_has_the_throughput_of_neither_extreme(run):
    """More than with full reservations, at a tenth of the retractions of none at all."""
    small = ["workload.clients=100", "scheduler.max_total_tokens=20000"]
    full = ["scheduler.init_new_token_ratio=1", "scheduler.min_new_token_ratio_factor=1"]
    none = ["scheduler.clip_max_new_tokens=1"]
    own = [*none, "scheduler.admission=past_future:PastFuture"]
    careful, greedy, foresees = (run(ANSWERS, *small, *each)[1] for each in (full, none, own))
    default = run(ANSWERS, *small)[1]
    assert foresees["retractions"] < 0.1 * greedy["retractions"]
    assert foresees["output_throughput"] > 1.5 * careful["output_throughput"]
    assert foresees["output_throughput"] > 1.05 * default["output_throughput"]
    assert foresees["output_throughput"] > greedy["output_throughput"]


def test_sjf_is_the_worse_the_worse_its_guesses_are(run):
    """From exact guesses to ones that say nothing: then it is no better than by arrival."""
    path = SHIPPED / "guessed-outputs.yaml"
    means = [
        run(path, "workload.num_requests=1000", *options)[1]["mean_e2e_latency_ms"]
        for options in (
            ["workload.predicted_output.sigma=0"],
            ["workload.predicted_output.sigma=1"],
            ["workload.predicted_output.sigma=10"],
            ["scheduler.schedule_policy=fcfs"],
        )
    ]
    exact, rough, useless, by_arrival = means
    assert exact < rough < 0.95 * useless
    assert exact < 0.8 * by_arrival < useless
