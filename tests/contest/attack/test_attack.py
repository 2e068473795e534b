"""What an attack finds, from nothing: known ways to let a request starve."""

from types import SimpleNamespace

import numpy as np
import pytest

from sim.commands.running.simulate import simulate_built
from sim.contest.attack.duel import Duel
from sim.contest.attack.explain import explain, sentences
from sim.contest.attack.search import attack
from sim.contest.attack.shrink import smaller
from sim.contest.attack.streams import RequestStream, TraceLimits, rows_of
from sim.contest.plan import plan_contest
from sim.des.run import RunOptions
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from tests.support.serve import LINEAR_LATENCY

CONTEST = (
    f"name: starve\n{LINEAR_LATENCY}"
    """\
workload: {kind: synthetic, num_requests: 4, arrivals: {kind: poisson, rate_rps: 5},
  prompt_tokens: {kind: constant, value: 50}, output_tokens: {kind: constant, value: 5}}
scheduler: {page_size: 1, max_total_tokens: 3000, chunked_prefill_size: 512}
slo: {ttft_ms: 500}
contest:
  reference: fcfs
  contestants:
    fcfs: {scheduler.schedule_policy: fcfs}
    lpm: {scheduler.schedule_policy: lpm}
    lpm-20ms: {scheduler.schedule_policy: lpm, scheduler.fairness: {kind: fairness_t, t_ms: 20}}
    shortest: {scheduler.schedule_policy: shortest-prefill-first}
    priority: {scheduler.schedule_policy: fcfs, scheduler.enable_priority_scheduling: true}
  traffic: [own]
"""
)


def serve(loaded, read_trace):
    return simulate_built(build(loaded, read_trace=read_trace), RunOptions())


@pytest.fixture
def duel(tmp_path):
    """A contestant of `CONTEST` against fcfs."""

    def against_fcfs(name):
        contest = plan_contest(load_scenario_text(CONTEST, (), name="starve.yaml"))
        return Duel(contest, serve, name, tmp_path / "attack.jsonl", tmp_path)

    return against_fcfs


def searched(duel, *, num_trials, seed):
    return attack(duel, limits_of(duel), num_trials=num_trials, seed=seed, watcher=lambda _: None)


def limits_of(duel):
    return TraceLimits(duel.unit_s, 400, 20, 60, has_priorities=duel.has_priorities)


@pytest.mark.parametrize(
    ("name", "rule", "seed"),
    [
        ("lpm", "more cached tokens", 2),
        pytest.param("shortest", "fewer tokens to compute", 1, marks=pytest.mark.long),
        pytest.param("priority", "a higher priority", 2, marks=pytest.mark.long),
    ],
)
def test_attack_finds_the_known_starvation(duel, name, rule, seed):
    """All that got past the request have what the policy orders by, and it waits much longer."""
    against = duel(name)
    found = searched(against, num_trials=60, seed=seed)
    explained = explain(found.outcome)
    assert explained.here_s > 2 * explained.there_s
    shares = {each.what: each.num for each in explained.likenesses}
    assert shares[rule] == explained.num_first > 0
    assert 1 < len(found.rows) <= found.first_rows
    if name == "lpm":
        protected = duel("lpm-20ms").outcome(found.rows)
        assert protected.score < found.outcome.score / 2


def test_attack_is_repeated_by_its_seed(duel):
    once, again = (searched(one, num_trials=12, seed=5) for one in (duel("lpm"), duel("lpm")))
    assert once.rows == again.rows
    assert once.outcome.score == again.outcome.score


def test_duel_of_a_scheduler_with_itself_finds_nothing(duel):
    against = duel("lpm")
    against.names = "lpm", "lpm"
    streams = [
        RequestStream(20, 0.0, 0.2, 200, 100, 5, 0),
        RequestStream(3, 0.5, 1.0, 300, 0, 5, 0),
    ]
    outcome = against.outcome(rows_of(streams, limits_of(against)))
    assert outcome.score == 0


def test_duel_without_an_end_counts_for_nothing(duel):
    """A prompt that no server takes is rejected."""
    against = duel("lpm")
    assert (
        against.outcome(rows_of([RequestStream(1, 0, 1, 5000, 0, 5, 0)], limits_of(against)))
        is None
    )


class Counting:
    """A duel whose score is the number of rows of stream a, if b0 is there."""

    def outcome(self, rows):
        names = [row.rid for row in rows]
        score = sum(name.startswith("a") for name in names) if "b0" in names else 0
        return SimpleNamespace(score=float(score))


def test_smaller_keeps_what_it_takes_and_nothing_else():
    streams = [RequestStream(20, 0, 1, 10, 0, 1, 0), RequestStream(9, 0, 1, 10, 0, 1, 0)]
    rows = rows_of(streams, TraceLimits(1.0, 10, 1, 20, has_priorities=False))
    left, num_tried = smaller(Counting(), rows, 20.0)
    assert sorted(row.rid for row in left if row.rid[0] == "b") == ["b0"]
    assert sum(row.rid[0] == "a" for row in left) == 18
    assert num_tried < 200


def test_sentences_name_what_those_served_first_have(duel):
    against = duel("shortest")
    streams = [
        RequestStream(40, 0.0, 0.05, 100, 0, 1, 0),
        RequestStream(1, 0.01, 1.0, 400, 0, 1, 0),
    ]
    outcome = against.outcome(rows_of(streams, limits_of(against)))
    assert outcome.here.rid[outcome.victim] == "b0"
    text = " ".join(sentences(explain(outcome), "shortest", "fcfs"))
    assert text.startswith("Request b0 takes ")
    assert "of these, all have fewer tokens to compute" in text
    assert np.all(outcome.here.preemptions == 0)
