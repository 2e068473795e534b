"""Real runs simulated again: replayed, with recorded step times, with a profile's."""

from dataclasses import fields

import numpy as np
import pytest

from calibrate.rebuild import rebuild
from calibrate.stages import replay_decisions, simulate_profile, simulate_recorded
from sim.runlog import RequestColumns
from sim.workload.kinds.build import build_workload
from tests.support.measured_runs import Disturbance

SETTINGS = [
    (),
    ("scheduler.disable_overlap_schedule=true",),
    ("scheduler.schedule_policy=fcfs", "scheduler.enable_mixed_chunk=true"),
    ("scheduler.chunked_prefill_size=-1", "scheduler.max_total_tokens=1024"),
    ("scheduler.disable_radix_cache=true", "scheduler.disable_overlap_schedule=true"),
]
NOISY = Disturbance(noise=0.2, seed=5)
LATE = Disturbance(noise=0.2, lag_ns=2_000_000, seed=5)


def assert_same_requests(ours, theirs):
    """Every column of two logs' requests."""
    for column in fields(RequestColumns):
        a, b = getattr(ours.requests, column.name), getattr(theirs.requests, column.name)
        assert list(a) == list(b), column.name


@pytest.mark.parametrize("settings", SETTINGS)
def test_replay_real_run_is_decided_again(rebuilt, settings):
    """Whatever the noise, and with arrivals between a result and the next decision."""
    run = rebuilt("run.jsonl", *settings, disturbance=LATE)
    assert replay_decisions(run) is None


def test_replay_tampered_decision_is_found_where_it_is(rebuilt):
    """The step and the field, no other."""

    def change(run):
        run.steps[37]["queue"] += 1

    divergence = replay_decisions(rebuilt(change=change))
    assert divergence.where == "step 37"
    assert divergence.fields == ("queue",)


def test_replay_tampered_prefill_is_found_where_it_is(rebuilt):
    """A prefix that the cache did not hold."""

    def change(run):
        step = next(step for step in run.steps if step["prefill"])
        step["prefill"][0][1] += 16

    divergence = replay_decisions(rebuilt(change=change))
    assert divergence.where == "step 0"
    assert divergence.fields == ("prefill",)


@pytest.mark.parametrize("settings", SETTINGS)
def test_recorded_steps_of_a_punctual_server_give_its_run(rebuilt, settings):
    """Where decisions take no time of their own, noise in step times leaves no error at all."""
    run = rebuilt("run.jsonl", *settings, disturbance=NOISY)
    simulated = simulate_recorded(run)
    assert simulated.parted_at is None
    assert simulated.same_steps_pct == 100
    assert_same_requests(run.log, simulated.log)


def test_recorded_steps_of_a_late_server_part_and_stay_close(rebuilt):
    """A request seen one step earlier moves steps; what they cost is still known."""
    run = rebuilt("run.jsonl", disturbance=LATE)
    simulated = simulate_recorded(run)
    assert 0 < simulated.parted_at < len(run.recorded.steps)
    assert 50 < simulated.same_steps_pct < 100
    real_ns = run.log.requests.finish_ns - run.log.requests.arrival_ns
    ours_ns = simulated.log.requests.finish_ns - simulated.log.requests.arrival_ns
    assert ours_ns.mean() == pytest.approx(real_ns.mean(), rel=0.05)


def test_recorded_steps_of_clients_come_at_the_times_of_the_log(scenario, record, profile):
    """Closed-loop clients have sent their requests: no simulated answer moves them."""
    clients = (
        "workload={kind: clients, clients: 3, requests_per_client: 4,"
        " think_s: {kind: constant, value: 0.05},"
        " prompt_tokens: {kind: uniform, min: 20, max: 300},"
        " output_tokens: {kind: uniform, min: 2, max: 30}}"
    )
    loaded = scenario(clients)
    built = build_workload(loaded.scenario.workload, seed=3, base_dir=loaded.base_dir)
    turns = [turn.request for client in built.clients for turn in client]
    arrivals = [request.sent_at(90_000_000 * number) for number, request in enumerate(turns)]
    run = rebuild(record("run.jsonl", clients, arrivals=arrivals, disturbance=NOISY))
    assert replay_decisions(run) is None
    simulated = simulate_recorded(run)
    assert simulated.log.requests.arrival_ns.tolist() == [90_000_000 * i for i in range(12)]
    assert_same_requests(run.log, simulated.log)


def test_recorded_steps_include_rejected_requests(rebuilt):
    """They arrive, and are turned away again."""
    run = rebuilt("run.jsonl", "scheduler.context_length=200", disturbance=NOISY)
    assert "rejected" in run.log.requests.status
    assert_same_requests(run.log, simulate_recorded(run).log)


@pytest.mark.parametrize("settings", SETTINGS)
def test_profile_that_is_the_truth_gives_the_real_run(rebuilt, profile, settings):
    """Without noise nothing is left."""
    run = rebuilt("run.jsonl", *settings)
    simulated = simulate_profile(run, profile())
    assert simulated.parted_at is None
    assert_same_requests(run.log, simulated.log)


def test_profile_off_by_a_factor_is_off_by_it_where_nothing_queues(rebuilt, profile):
    """Each request alone: every latency is 1.1 times what it was, to the nanosecond's rounding."""
    alone = ("workload.arrivals={kind: constant, rate_rps: 1}",)
    run = rebuilt("run.jsonl", *alone, "scheduler.disable_overlap_schedule=true")
    ours = simulate_profile(run, profile(1.1)).log.requests
    theirs = run.log.requests
    for name in ("first_token_ns", "finish_ns"):
        real_ns = getattr(theirs, name) - theirs.arrival_ns
        ours_ns = getattr(ours, name) - ours.arrival_ns
        assert np.allclose(ours_ns, 1.1 * real_ns, rtol=1e-6)
