"""Synthetic traffic: shared prefixes, limits, guesses, independent random streams."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.core.errors import InputError
from sim.workload.lengths import OutputFactor, limit_outputs

GROUPS = {
    "groups": 4,
    "tokens": {"kind": "uniform", "min": 50, "max": 90},
    "share_probability": 0.5,
    "zipf": 1.0,
}


def requests_of(workload):
    return list(workload.arrivals())


def segments_of(workload):
    return [request.spec.prompt.segments for request in workload.arrivals()]


def group_counts(workload):
    """How often each shared prefix is used, most popular first."""
    firsts = [segments[0] for segments in segments_of(workload) if len(segments) == 2]
    return sorted((firsts.count(first) for first in set(firsts)), reverse=True)


def test_synthetic_requests_are_numbered_and_in_order_of_time(synthetic):
    """As many as asked for, each with the lengths of its distributions."""
    requests = requests_of(synthetic(num_requests=50, tenant="chat"))
    assert [request.spec.rid for request in requests] == [str(i) for i in range(50)]
    times = [request.spec.arrival_ns for request in requests]
    assert times == sorted(times)
    assert {len(request.spec.prompt) for request in requests} == {100}
    assert {request.script.num_tokens for request in requests} == {10}
    assert {request.spec.tenant for request in requests} == {"chat"}


def test_synthetic_share_probability_is_the_share_of_prefixed_prompts(synthetic):
    """Three in ten of ten thousand, within four standard deviations."""
    prefixes = GROUPS | {"share_probability": 0.3}
    segments = segments_of(synthetic(num_requests=10_000, prefixes=prefixes))
    assert sum(len(each) == 2 for each in segments) == pytest.approx(3000, abs=4 * 46)


@pytest.mark.parametrize(("probability", "num_segments"), [(0, {1}), (1, {2})])
def test_synthetic_share_probability_zero_and_one_are_never_and_always(
    synthetic, probability, num_segments
):
    """The ends of the range are exact."""
    workload = synthetic(prefixes=GROUPS | {"share_probability": probability})
    assert {len(each) for each in segments_of(workload)} == num_segments


@pytest.mark.parametrize("zipf", [0.0, 1.0, 2.0])
def test_synthetic_group_popularity_follows_zipfs_law(synthetic, zipf):
    """Group g is as likely as 1 / (g + 1) ** zipf."""
    prefixes = GROUPS | {"share_probability": 1, "zipf": zipf}
    counts = group_counts(synthetic(num_requests=10_000, prefixes=prefixes))
    weights = np.arange(1, 5) ** -zipf
    assert counts == pytest.approx(10_000 * weights / weights.sum(), rel=0.1)


def test_synthetic_prefix_length_is_drawn_once_for_its_group(synthetic):
    """A group has one prefix, not one a request; groups differ in length and content."""
    prefixes = GROUPS | {"groups": 30, "share_probability": 1, "zipf": 0}
    firsts = {segments[0] for segments in segments_of(synthetic(prefixes=prefixes))}
    assert len(firsts) == len({seed for seed, _ in firsts}) == 30
    assert all(50 <= num_tokens <= 90 for _, num_tokens in firsts)
    assert len({num_tokens for _, num_tokens in firsts}) > 5


def test_synthetic_unshared_prompts_as_long_have_the_same_lengths_at_any_share(synthetic):
    """Only what is shared changes: prompts of one segment are as long as those of two."""
    lengths = []
    for probability in (0, 0.5, 1):
        prefixes = GROUPS | {"share_probability": probability, "unshared_as_long": True}
        workload = synthetic(prefixes=prefixes)
        lengths.append([len(request.spec.prompt) for request in requests_of(workload)])
        assert {len(each) for each in segments_of(workload)} == {0: {1}, 0.5: {1, 2}, 1: {2}}[
            probability
        ]
    assert lengths[0] == lengths[1] == lengths[2]
    assert min(lengths[0]) >= 150


def test_synthetic_system_prompt_comes_first_then_the_prefix(synthetic):
    """All share the system prompt; `prompt_tokens` counts what is the request's own."""
    prefixes = GROUPS | {"share_probability": 1}
    segments = segments_of(synthetic(prefixes=prefixes, system_prompt_tokens=33))
    assert len({each[0] for each in segments}) == 1
    assert segments[0][0][1] == 33
    assert {len(each) for each in segments} == {3}
    assert {each[2][1] for each in segments} == {100}
    assert len({each[2][0] for each in segments}) == 1000


def test_synthetic_streams_are_shared_by_nobody_by_accident(synthetic):
    """System prompt, prefixes, own texts and outputs all have seeds of their own."""
    workload = synthetic(prefixes=GROUPS, system_prompt_tokens=1)
    own = [segments[-1][0] for segments in segments_of(workload)]
    outputs = [request.script.seed for request in workload.arrivals()]
    shared = {seed for segments in segments_of(workload) for seed, _ in segments[:-1]}
    assert len({*own, *outputs, *shared}) == len(own) + len(outputs) + len(shared) == 2005


def test_synthetic_without_a_limit_may_generate_the_whole_output(synthetic):
    """`max_new_tokens` is the output length unless said otherwise, and nobody guesses."""
    specs = [request.spec for request in requests_of(synthetic())]
    assert {spec.max_new_tokens for spec in specs} == {10}
    assert {(spec.predicted_output_tokens, spec.priority) for spec in specs} == {(None, None)}


@pytest.mark.parametrize(("limit", "expected"), [(4096, 4096), ({"factor": 1.25}, 13), (3, 3)])
def test_synthetic_limit_is_a_number_or_a_factor_rounded_up(synthetic, limit, expected):
    """1.25 x 10 is 12.5, hence 13."""
    requests = requests_of(synthetic(max_new_tokens=limit))
    assert {request.spec.max_new_tokens for request in requests} == {expected}


@given(output=st.integers(1, 10**7), tenths=st.integers(1, 10_000))
def test_limit_by_a_decimal_factor_is_exact(output, tenths):
    """1.1 x 10 is 11: binary fractions do not add a token."""
    limit = limit_outputs(OutputFactor(factor=tenths / 10), np.array([output]), own=None)
    assert limit.tolist() == [max(1, math.ceil(output * tenths / 10 - 1e-7))]


def test_synthetic_exact_guess_is_what_will_be_generated(synthetic):
    """The output's length, or the limit where that is shorter."""
    for limit, expected in ((None, 10), (6, 6), (99, 10)):
        workload = synthetic(max_new_tokens=limit, predicted_output={"kind": "exact"})
        guesses = {r.spec.predicted_output_tokens for r in workload.arrivals()}
        assert guesses == {expected}


def test_synthetic_lognormal_guess_is_off_by_the_stated_factor(synthetic):
    """The logarithm of guess / truth has mean 0 and standard deviation sigma."""
    workload = synthetic(
        num_requests=10_000,
        output_tokens={"kind": "constant", "value": 100_000},
        predicted_output={"kind": "lognormal", "sigma": 0.3},
    )
    guesses = np.array([r.spec.predicted_output_tokens for r in workload.arrivals()])
    off = np.log(guesses / 100_000)
    assert off.mean() == pytest.approx(0, abs=0.01)
    assert off.std() == pytest.approx(0.3, rel=0.03)


def test_synthetic_guess_is_at_least_one_token(synthetic):
    """Even if the error is large."""
    workload = synthetic(
        output_tokens={"kind": "constant", "value": 1},
        predicted_output={"kind": "lognormal", "sigma": 10},
    )
    assert min(r.spec.predicted_output_tokens for r in workload.arrivals()) == 1


def test_synthetic_options_that_draw_shift_no_other_draw(synthetic):
    """Guesses and prefixes leave arrivals and lengths as they were."""
    options = {"prompt_tokens": {"kind": "geometric", "mean": 50}}
    plain = requests_of(synthetic(**options))
    guess = {"kind": "lognormal", "sigma": 1}
    rich = requests_of(synthetic(**options, prefixes=GROUPS, predicted_output=guess))
    assert [r.spec.arrival_ns for r in plain] == [r.spec.arrival_ns for r in rich]
    own = [r.spec.prompt.segments[-1][1] for r in rich]
    assert [len(r.spec.prompt) for r in plain] == own


def test_synthetic_iterated_twice_is_the_same_and_another_seed_is_not(synthetic, facts):
    """Every iteration yields equal requests."""
    workload = synthetic(num_requests=20, prefixes=GROUPS)
    first = facts(workload)
    assert facts(workload) == facts(synthetic(num_requests=20, prefixes=GROUPS)) == first
    assert facts(synthetic(seed=1, num_requests=20, prefixes=GROUPS)) != first


def test_synthetic_prompt_above_ten_million_tokens_is_refused(synthetic):
    """The parts are legal, their sum is not."""
    with pytest.raises(
        InputError, match=r"^workload: a prompt has 10000100 tokens, above 10000000$"
    ):
        synthetic(system_prompt_tokens=10**7)


# (options, what the error says)
BAD = [
    ({"num_requests": 0}, "greater than or equal to 1"),
    ({"num_requests": 10**8 + 1}, "less than or equal to 100000000"),
    ({"max_new_tokens": 0}, "greater than or equal to 1"),
    ({"max_new_tokens": {"factor": 0}}, "greater than 0"),
    ({"predicted_output": {"kind": "lognormal", "sigma": -1}}, "greater than or equal to 0"),
    ({"prefixes": GROUPS | {"share_probability": 1.1}}, "less than or equal to 1"),
    ({"prefixes": GROUPS | {"groups": 0}}, "greater than or equal to 1"),
    ({"prefixes": GROUPS | {"zipf": -1}}, "greater than or equal to 0"),
    ({"system_prompt_tokens": -1}, "greater than or equal to 0"),
    ({"num_request": 5}, "Extra inputs"),
]


@pytest.mark.parametrize(("options", "reason"), BAD)
def test_synthetic_bad_option_is_refused(synthetic, options, reason):
    """Out of range, or unknown."""
    with pytest.raises(ValidationError, match=reason):
        synthetic(**options)


def test_give_up_is_drawn_for_its_share_and_changes_no_other_draw(synthetic):
    """About a third of the clients, each after its own time."""
    patience = {"share": 0.3, "after_s": {"kind": "exponential", "mean": 2.0}}
    plain = requests_of(synthetic(num_requests=400))
    drawn = requests_of(synthetic(num_requests=400, give_up=patience))
    times_ns = [r.spec.gives_up_ns for r in drawn if r.spec.gives_up_ns is not None]
    assert 90 < len(times_ns) == len(set(times_ns)) < 150
    assert [r.spec.arrival_ns for r in drawn] == [r.spec.arrival_ns for r in plain]
    assert {r.spec.gives_up_ns for r in plain} == {None}
