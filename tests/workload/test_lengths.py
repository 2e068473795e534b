"""Length distributions: means, spread, limits, and bad sections."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from sim.core.errors import InputError
from sim.workload.lengths import LengthDistribution, draw_lengths
from sim.workload.rng import RandomStreams

ADAPTER = TypeAdapter(LengthDistribution)
NUM_DRAWS = 50_000


def draw(num_draws=NUM_DRAWS, seed=1, **distribution):
    rng = RandomStreams(seed).stream("lengths")
    return draw_lengths(ADAPTER.validate_python(distribution), num_draws, rng, key=("here",))


def test_lengths_constant_are_all_the_value():
    """There is no randomness."""
    assert set(draw(kind="constant", value=17)) == {17}


def test_lengths_uniform_hit_every_value_and_both_ends():
    """Mean (3 + 9) / 2, each of the seven values a seventh of the time."""
    drawn = draw(kind="uniform", min=3, max=9)
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [3, 4, 5, 6, 7, 8, 9]
    assert counts / NUM_DRAWS == pytest.approx([1 / 7] * 7, rel=0.05)


@pytest.mark.parametrize(("mean", "cv"), [(300, 0.5), (1000, 1.0), (200, 2.0)])
def test_lengths_lognormal_have_the_stated_mean_and_cv(mean, cv):
    """Mean and CV are those of the lengths, not of their logarithms."""
    drawn = draw(kind="lognormal", mean=mean, cv=cv)
    assert drawn.mean() == pytest.approx(mean, rel=0.03)
    assert drawn.std() / drawn.mean() == pytest.approx(cv, rel=0.1)


def test_lengths_lognormal_without_spread_are_the_mean():
    """A CV of 0 is a constant."""
    assert set(draw(kind="lognormal", mean=250, cv=0)) == {250}


def test_lengths_geometric_have_the_stated_mean_and_fall():
    """Mean 5; 1 is the likeliest, with probability 1/5."""
    drawn = draw(kind="geometric", mean=5)
    assert drawn.mean() == pytest.approx(5, rel=0.03)
    assert (drawn == 1).mean() == pytest.approx(0.2, rel=0.05)
    assert (drawn == 2).mean() == pytest.approx(0.16, rel=0.05)


def test_lengths_choice_follows_the_weights():
    """Weights need not add up to 1; a value of weight 0 never comes."""
    drawn = draw(kind="choice", values=[5, 50, 500], weights=[3, 0, 1])
    assert (drawn == 5).mean() == pytest.approx(0.75, rel=0.03)
    assert (drawn == 50).sum() == 0


def test_lengths_choice_without_weights_is_even():
    """Two values, half each."""
    assert (draw(kind="choice", values=[5, 50]) == 5).mean() == pytest.approx(0.5, rel=0.03)


@given(
    kind=st.sampled_from([{"kind": "lognormal", "cv": 3.0}, {"kind": "geometric"}]),
    mean=st.floats(1, 5000),
    limits=st.lists(st.integers(1, 10_000), min_size=2, max_size=2).map(sorted),
    seed=st.integers(0, 99),
)
def test_lengths_clipped_stay_within_min_and_max(kind, mean, limits, seed):
    """Draws beyond a limit become the limit."""
    drawn = draw(200, seed, mean=mean, min=limits[0], max=limits[1], **kind)
    assert drawn.dtype == np.int64
    assert limits[0] <= drawn.min() <= drawn.max() <= limits[1]


def test_lengths_are_at_least_one_token():
    """A log-normal of mean 1 and wide spread rounds to 0 most of the time."""
    assert draw(kind="lognormal", mean=1, cv=3).min() == 1


def test_lengths_above_ten_million_tokens_are_refused():
    """An absurd draw is an error that says what to do, and no prompt of terabytes."""
    expected = r"^here: drew \d+, above 10000000: lower the mean or set max$"
    with pytest.raises(InputError, match=expected):
        draw(kind="lognormal", mean=9_000_000, cv=5)


# (section, what the error says)
BAD = [
    ({"kind": "constant", "value": 0}, "greater than or equal to 1"),
    ({"kind": "constant", "value": 10**7 + 1}, "less than or equal to 10000000"),
    ({"kind": "constant", "value": 1.5}, "valid integer"),
    ({"kind": "uniform", "min": 9, "max": 3}, "min 9 is above max 3"),
    ({"kind": "lognormal", "mean": 5, "cv": 1, "min": 9, "max": 3}, "min 9 is above max 3"),
    ({"kind": "geometric", "mean": 5, "min": 9, "max": 3}, "min 9 is above max 3"),
    ({"kind": "lognormal", "mean": 100, "cv": 101}, "less than or equal to 100"),
    ({"kind": "geometric", "mean": 0.5}, "greater than or equal to 1"),
    ({"kind": "lognormal", "mean": float("nan"), "cv": 1}, "finite number"),
    ({"kind": "choice", "values": []}, "at least 1 item"),
    ({"kind": "choice", "values": [1, 2], "weights": [1]}, "2 values but 1 weights"),
    ({"kind": "choice", "values": [1], "weights": [0]}, "must add up to a positive"),
    ({"kind": "choice", "values": [1], "weights": [-1]}, "greater than or equal to 0"),
    ({"kind": "normal", "mean": 5}, "'normal'"),
    ({"kind": "constant", "value": 5, "max": 9}, "Extra inputs"),
]


@pytest.mark.parametrize(("section", "reason"), BAD)
def test_lengths_bad_section_is_refused(section, reason):
    """Wrong ranges, orders, types and names."""
    with pytest.raises(ValidationError, match=reason):
        ADAPTER.validate_python(section)
