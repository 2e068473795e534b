"""Transfers: when they arrive, in which order, and what happens to those that fail."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from sim.core.errors import InvariantError
from sim.des.clock import Clock
from sim.des.transfers.links import LinkUse
from sim.des.transfers.transfers import Transfers
from sim.latency.kv_memory import KvBytes
from sim.scenario.servers_section import TransferSection

KB = 1000


def test_a_transfer_takes_its_latency_and_its_bytes(run_all):
    sent = run_all([(5, "a", 0, 1, 3 * KB)], latency_s=1e-6, bytes_per_token=2, state_bytes=500)
    assert sent.arrived_ns == {"a": 5 + 1000 + 6500}


def test_two_equal_transfers_share_a_link_and_a_third_does_not(run_all):
    """b begins when half of a is sent; then both take twice as long. c uses other links."""
    sent = run_all([(0, "a", 0, 2, 2 * KB), (1000, "b", 0, 3, 2 * KB), (1000, "c", 1, 4, 2 * KB)])
    assert sent.arrived_ns == {"a": 3000, "c": 3000, "b": 4000}
    assert list(sent.arrived_ns) == ["a", "c", "b"]


def test_receivers_are_shared_too(run_all):
    sent = run_all([(0, "a", 0, 2, KB), (0, "b", 1, 2, KB)])
    assert sent.arrived_ns == {"a": 2000, "b": 2000}


def test_the_fabric_is_shared_by_all(run_all):
    starts = [(0, f"r{n}", n, 10 + n, KB) for n in range(4)]
    assert set(run_all(starts, fabric_gb_s=2.0).arrived_ns.values()) == {2000}


def test_without_limits_a_transfer_takes_its_latency(run_all):
    starts = [(0, f"r{n}", 0, 1, 10**9) for n in range(5)]
    for fabric_gb_s in ("unlimited", math.inf):
        sent = run_all(starts, bandwidth_gb_s=math.inf, latency_s=2e-6, fabric_gb_s=fabric_gb_s)
        assert list(sent.arrived_ns.items()) == [(f"r{n}", 2000) for n in range(5)]
    assert run_all(starts, bandwidth_gb_s=math.inf).arrived_ns["r4"] == 0


def test_endless_links_share_what_the_fabric_has(run_all):
    starts = [(0, f"r{n}", 0, 1, KB) for n in range(4)]
    sent = run_all(starts, bandwidth_gb_s=math.inf, fabric_gb_s=1.0)
    assert set(sent.arrived_ns.values()) == {4000}


def test_no_bytes_take_no_time(run_all):
    assert run_all([(7, "a", 0, 1, 0)]).arrived_ns == {"a": 7}


def test_a_queue_sends_one_transfer_after_another(run_all):
    """With two queues of a sender, targets 2 and 4 have one together, and target 3 the other."""
    starts = [(0, "a", 0, 2, KB), (0, "b", 0, 4, KB), (0, "c", 0, 3, KB)]
    keys = {"bandwidth_gb_s": 100.0, "latency_s": 1e-6}
    sent = run_all(starts, **keys, send_queues=2)
    assert sent.arrived_ns == {"a": 1020, "c": 1020, "b": 2030}
    assert sent.transfers.stats().queue_ns == 1020
    # The queues of another sender are its own.
    other = run_all([*starts, (0, "d", 1, 5, KB)], **keys, send_queues=2)
    assert other.arrived_ns == sent.arrived_ns | {"d": 1010}
    assert run_all(starts[:2], **keys).arrived_ns == {"a": 1020, "b": 1020}


def test_the_section_decides_about_queues_if_it_says_so(run_all):
    starts = [(0, "a", 0, 2, KB), (0, "b", 0, 2, KB)]
    assert run_all(starts).arrived_ns == {"a": 2000, "b": 2000}
    assert run_all(starts, send_queues=1).arrived_ns == {"a": 1000, "b": 2000}


def test_ranks_have_equal_shares_of_a_link():
    """Two of the four ranks of replica 0 send to replica 1, which is one rank."""
    env, arrived_ns = Clock(), []
    settings = TransferSection.model_validate({"bandwidth_gb_s": 4.0})
    transfers = Transfers(
        env,
        settings,
        lambda target: KvBytes(1),
        num_ranks=lambda replica: 4 if replica == 0 else 1,
    )
    for rank in (0, 3):
        transfers.start(
            "r",
            (0, rank),
            (1, 0),
            KB * (1 + rank),
            is_last=True,
            ended=lambda has_arrived: arrived_ns.append(env.now_ns if has_arrived else -1),
        )
    env.run()
    assert arrived_ns == [1000, 4000]
    counts = transfers.stats()
    assert counts.sent == {0: LinkUse(5 * KB, 5000)}
    assert counts.received == {1: LinkUse(5 * KB, 4000)}


@pytest.mark.parametrize(("prompt_tokens", "taken_ns"), [(5, 56), (100, 206), (None, 206)])
def test_windows_are_sent_at_the_end_and_no_more_than_the_prompt(prompt_tokens, taken_ns):
    """20 tokens of 10 bytes in the window, and a state of 6 bytes."""
    env, arrived_ns = Clock(), []
    settings = TransferSection.model_validate({"bandwidth_gb_s": 1.0})
    transfers = Transfers(env, settings, lambda target: KvBytes(0, 6, ((20, 10),)))
    for is_last in (False, True):
        transfers.start(
            "r",
            (0, 0),
            (1, 0),
            3,
            is_last=is_last,
            ended=lambda has_arrived: arrived_ns.append(env.now_ns if has_arrived else -1),
            prompt_tokens=prompt_tokens,
        )
    env.run()
    assert arrived_ns == [0, taken_ns]


# ---- failures ------------------------------------------------------------------------------------


def test_a_transfer_is_attempted_again_until_it_is_given_up(run_all):
    sent = run_all([(0, "a", 0, 1, KB)], failure_rate=1.0, max_retries=2, latency_s=1e-6)
    assert sent.failed_ns == {"a": 6000}
    assert not sent.arrived_ns
    counts = sent.transfers.stats()
    assert (counts.num_transfers, counts.num_failed, counts.num_retries) == (0, 1, 2)
    assert counts.sent[0].num_bytes == 3 * KB


def test_the_share_of_failures_is_the_rate_that_was_asked_for(run_all):
    starts = [(n, f"r{n}", 0, 1, 1) for n in range(2000)]
    failed = run_all(starts, failure_rate=0.1).failed_ns
    assert stats.binomtest(len(failed), 2000, 0.1).pvalue > 0.01
    others = run_all(starts, failure_rate=0.1, seed=1).failed_ns
    assert stats.binomtest(len(others), 2000, 0.1).pvalue > 0.01
    assert failed.keys() != others.keys()


def test_who_fails_does_not_depend_on_the_order(run_all):
    starts = [(n, f"r{n}", n % 3, 3 + n % 4, KB) for n in range(300)]
    turned = [(300 - n, *what) for n, *what in starts]
    failed = [run_all(each, failure_rate=0.2, max_retries=1).failed_ns for each in (starts, turned)]
    assert failed[0].keys() == failed[1].keys()
    assert failed[0]


def test_late_transfers_fail_also_those_in_a_queue(run_all):
    starts = [(0, "a", 0, 1, KB), (0, "b", 0, 1, KB), (0, "c", 0, 1, 9 * KB), (10, "d", 0, 1, KB)]
    sent = run_all(starts, send_queues=1, timeout_s=2.5e-6)
    assert sent.arrived_ns == {"a": 1000, "b": 2000}
    # c has 500 bytes sent when it fails. d is given its turn for 10 ns.
    assert sent.failed_ns == {"c": 2500, "d": 2510}
    assert sent.transfers.stats().sent[0].num_bytes == 2 * KB + 500 + 10


def test_one_that_arrives_in_time_does_not_fail(run_all):
    assert run_all([(0, "a", 0, 1, KB)], timeout_s=1e-6).arrived_ns == {"a": 1000}


# ---- theory, and what holds for all --------------------------------------------------------------


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_mean_time_on_a_shared_link_agrees_with_theory(run_all, load):
    """A queue with processor sharing: S / (1 - rho), within the 99 % interval of batch means."""
    size, means_ns = 10 * KB, []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        times_ns = np.cumsum(np.rint(rng.exponential(size / load, 2000)).astype(int)).tolist()
        arrived_ns = run_all([(t, f"r{n}", 0, 1, size) for n, t in enumerate(times_ns)]).arrived_ns
        taken_ns = [arrived_ns[f"r{n}"] - t for n, t in enumerate(times_ns)]
        means_ns.append(np.mean(taken_ns[200:]))
    half_width_ns = stats.t.ppf(0.995, 11) * stats.sem(means_ns)
    assert abs(np.mean(means_ns) - size / (1 - load)) < half_width_ns
    # Narrow enough to tell it from a queue: S + rho S / (2 (1 - rho)).
    assert half_width_ns < 0.5 * load * size / (2 * (1 - load))


transfers = st.lists(
    st.tuples(st.integers(0, 3), st.integers(4, 6), st.integers(0, 5000), st.integers(0, 4)),
    min_size=1,
    max_size=25,
)
settings = st.fixed_dictionaries(
    {
        "bandwidth_gb_s": st.sampled_from([0.7, 1.0, 30.0, math.inf]),
        "fabric_gb_s": st.sampled_from([math.inf, 0.9, 3.0]),
        "latency_s": st.sampled_from([0.0, 1e-7, 3e-6]),
        "send_queues": st.integers(0, 3),
        "failure_rate": st.sampled_from([0.0, 0.3]),
        "max_retries": st.integers(0, 2),
        "timeout_s": st.sampled_from([None, 4e-6]),
    }
)


@given(transfers, settings)
def test_every_transfer_ends_and_no_byte_is_lost(run_all, drawn, keys):
    starts, now_ns = [], 0
    for number, (source, target, num_tokens, gap) in enumerate(drawn):
        now_ns += gap * 400
        starts.append((now_ns, f"r{number}", source, target, num_tokens))
    sent = run_all(starts, **keys)
    assert sorted([*sent.arrived_ns, *sent.failed_ns]) == sorted(rid for _, rid, *_ in starts)
    done = {rid: (start_ns, num) for start_ns, rid, _, _, num in starts if rid in sent.arrived_ns}
    counts = sent.transfers.stats()
    assert counts.num_bytes == sum(num for _, num in done.values())
    assert counts.num_transfers == len(done)
    assert counts.total_ns == sum(sent.arrived_ns[rid] - start for rid, (start, _) in done.items())
    if counts.sent and keys["bandwidth_gb_s"] < math.inf:
        both = [
            sum(use.num_bytes for use in each.values()) for each in (counts.sent, counts.received)
        ]
        assert both[0] == both[1] >= counts.num_bytes
        for use in (*counts.sent.values(), *counts.received.values()):
            # No link carries more than it can, and one is never idle while it has work.
            assert use.num_bytes <= use.busy_ns * keys["bandwidth_gb_s"] + 1
    fastest = min(keys["bandwidth_gb_s"], keys["fabric_gb_s"])
    for rid, (start_ns, num) in done.items():
        taken_ns = sent.arrived_ns[rid] - start_ns
        assert taken_ns >= num / fastest + keys["latency_s"] * 1e9 - 1e-6


@given(transfers)
def test_a_single_link_works_as_long_as_it_has_bytes(run_all, drawn):
    """The last of several transfers arrives when a queue would have sent them all."""
    starts, now_ns, free_ns = [], 0, 0
    for number, (_, _, num_tokens, gap) in enumerate(drawn):
        now_ns += gap * 400
        starts.append((now_ns, f"r{number}", 0, 1, num_tokens))
        free_ns = max(free_ns, now_ns) + num_tokens
    # An end is rounded up to a whole nanosecond.
    assert 0 <= max(run_all(starts).arrived_ns.values()) - free_ns <= len(starts)


@given(transfers, settings)
def test_calls_of_one_time_may_come_in_any_order(run_all, drawn, keys):
    """Ends differ by rounding at most; queues alone go by order."""
    keys = {**keys, "send_queues": 0, "timeout_s": None}
    starts = [(0, f"r{n}", source, target, num) for n, (source, target, num, _) in enumerate(drawn)]
    there, back = run_all(starts, **keys), run_all(starts[::-1], **keys)
    assert there.failed_ns.keys() == back.failed_ns.keys()
    # Each end is rounded up, and delays those that begin another attempt.
    most_ns = len(starts) * (1 + keys["max_retries"])
    assert there.arrived_ns == pytest.approx(back.arrived_ns, abs=most_ns, rel=0)


def test_a_turn_that_comes_at_the_deadline_is_too_late(run_all):
    starts = [(0, "a", 0, 4, 824), (0, "b", 0, 4, 1975), (0, "c", 0, 4, 1)]
    sent = run_all(starts, bandwidth_gb_s=0.7, send_queues=1, timeout_s=4e-6)
    assert sent.arrived_ns == {"a": 1178, "b": 4000}
    assert sent.failed_ns == {"c": 4000}


# ---- the section ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 0.0, -1.0, math.nan, -math.inf, 1e10, None, "fast", True])
def test_a_link_needs_a_bandwidth(value):
    with pytest.raises(ValidationError):
        TransferSection.model_validate({"bandwidth_gb_s": value})


def test_bandwidth_must_be_given():
    with pytest.raises(ValidationError, match="bandwidth_gb_s"):
        TransferSection.model_validate({})


def test_infinity_and_its_word_are_the_same():
    sections = [
        TransferSection.model_validate({"bandwidth_gb_s": x}) for x in (math.inf, "unlimited")
    ]
    assert sections[0] == sections[1]
    assert sections[0].model_dump(mode="json")["bandwidth_gb_s"] == "unlimited"
    assert sections[0].link_limit_gb_s == sections[0].fabric_limit_gb_s == math.inf


def test_tokens_are_not_negative(run_all):
    with pytest.raises(InvariantError):
        run_all([(0, "a", 0, 1, -1)])
