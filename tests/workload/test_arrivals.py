"""Arrival processes and think times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from sim.core.errors import InputError
from sim.workload.arrivals import Arrivals, ThinkTime, draw_arrivals_ns, draw_think_ns
from sim.workload.rng import RandomStreams

ARRIVALS, THINK = TypeAdapter(Arrivals), TypeAdapter(ThinkTime)
NUM_DRAWS = 50_000


def arrivals_ns(num=NUM_DRAWS, seed=1, **section):
    rng = RandomStreams(seed).stream("arrivals")
    return draw_arrivals_ns(ARRIVALS.validate_python(section), num, rng, key=("here",))


def think_ns(**section):
    rng = RandomStreams(1).stream("think")
    return draw_think_ns(THINK.validate_python(section), NUM_DRAWS, rng, key=("here",))


@pytest.mark.parametrize(
    ("section", "cv"),
    [
        ({"kind": "poisson"}, 1.0),
        ({"kind": "gamma", "cv": 3.0}, 3.0),
        ({"kind": "gamma", "cv": 0.25}, 0.25),
        ({"kind": "gamma", "cv": 1.0}, 1.0),
        ({"kind": "constant"}, 0.0),
    ],
)
def test_arrivals_have_the_stated_rate_and_gap_cv(section, cv):
    """Mean gap 50 ms, and the spread of its kind."""
    gaps = np.diff(arrivals_ns(**section, rate_rps=20))
    assert gaps.mean() == pytest.approx(50e6, rel=0.04)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05, abs=1e-6)


def test_arrivals_constant_begin_at_zero_and_do_not_drift():
    """The n-th comes at n / rate, rounded once."""
    drawn = arrivals_ns(num=3_000_001, kind="constant", rate_rps=3)
    assert drawn[:4].tolist() == [0, 333_333_333, 666_666_667, 1_000_000_000]
    assert drawn[3_000_000] == 1_000_000 * 1_000_000_000


def test_arrivals_burst_come_together_and_the_last_burst_may_be_short():
    """Three requests at once, every half second."""
    drawn = arrivals_ns(num=7, kind="burst", size=3, every_s=0.5)
    assert drawn.tolist() == [0, 0, 0, 500_000_000, 500_000_000, 500_000_000, 1_000_000_000]


def test_arrivals_burst_every_zero_seconds_are_all_at_once():
    """An offline batch."""
    assert set(arrivals_ns(num=9, kind="burst", size=2, every_s=0.0)) == {0}


@given(
    section=st.one_of(
        st.fixed_dictionaries({"kind": st.just("poisson"), "rate_rps": st.floats(1e-3, 1e6)}),
        st.fixed_dictionaries(
            {
                "kind": st.just("gamma"),
                "rate_rps": st.floats(1e-3, 1e6),
                "cv": st.floats(0, 100, exclude_min=True),
            }
        ),
    ),
    seed=st.integers(0, 99),
)
def test_arrivals_of_any_legal_section_never_decrease(section, seed):
    """Also where the spread is so small that its square is no number."""
    drawn = arrivals_ns(num=50, seed=seed, **section)
    assert drawn[0] >= 0
    assert (np.diff(drawn) >= 0).all()


@pytest.mark.parametrize(
    "section",
    [
        {"kind": "poisson", "rate_rps": 1e-300},
        {"kind": "constant", "rate_rps": 1e-320},
        {"kind": "gamma", "rate_rps": 1e-320, "cv": 0.1},
        {"kind": "burst", "size": 1, "every_s": 1e9},
    ],
)
def test_arrivals_beyond_the_clock_are_refused(section):
    """The times do not fit; the key is named."""
    with pytest.raises(InputError, match=r"^here: reaches \S+ years, beyond the clock$"):
        arrivals_ns(num=50, **section)


def test_think_exponential_has_the_stated_mean_and_spread():
    """Mean 2 s, CV 1."""
    drawn = think_ns(kind="exponential", mean=2.0)
    assert drawn.mean() == pytest.approx(2e9, rel=0.03)
    assert drawn.std() == pytest.approx(2e9, rel=0.03)


def test_think_lognormal_has_the_stated_mean_and_spread_up_to_its_limit():
    pauses_s = think_ns(kind="lognormal", mean=2, cv=1.5) / 1e9
    assert np.mean(pauses_s) == pytest.approx(2, rel=0.03)
    assert np.std(pauses_s) / np.mean(pauses_s) == pytest.approx(1.5, rel=0.1)
    limited_s = think_ns(kind="lognormal", mean=2, cv=1.5, max=3) / 1e9
    assert np.array_equal(limited_s, np.minimum(pauses_s, 3))


def test_think_constant_is_the_value():
    """There is no randomness, and 0 is allowed."""
    assert set(think_ns(kind="constant", value=0.25)) == {250_000_000}
    assert set(think_ns(kind="constant", value=0)) == {0}


# (section, what the error says)
BAD = [
    ({"kind": "poisson", "rate_rps": 0}, "greater than 0"),
    ({"kind": "poisson", "rate_rps": 2e6}, "less than or equal to 1000000"),
    ({"kind": "poisson", "rate_rps": float("inf")}, "finite number"),
    ({"kind": "gamma", "rate_rps": 1, "cv": 0}, "greater than 0"),
    ({"kind": "gamma", "rate_rps": 1, "cv": 101}, "less than or equal to 100"),
    ({"kind": "burst", "size": 0, "every_s": 1}, "greater than or equal to 1"),
    ({"kind": "burst", "size": 1, "every_s": -1}, "greater than or equal to 0"),
    ({"kind": "constant", "rate_rps": "10"}, "valid number"),
]


@pytest.mark.parametrize(("section", "reason"), BAD)
def test_arrivals_bad_section_is_refused(section, reason):
    """Out of range, or of the wrong type."""
    with pytest.raises(ValidationError, match=reason):
        ARRIVALS.validate_python(section)


def test_arrivals_cycle_follow_the_pattern_and_repeat_it():
    """A quarter without arrivals, then rates of 2, 4 and 2: in each of many periods."""
    pattern, period_ns = [0, 1, 2, 1], 1_000 * 10**9
    drawn = arrivals_ns(kind="cycle", rate_rps=2, pattern=pattern, period_s=1_000)
    assert np.diff(drawn).min() >= 0
    whole = drawn[: np.searchsorted(drawn, drawn[-1] // period_ns * period_ns)]
    part = whole % period_ns // (period_ns // 4)
    counts = np.bincount(part, minlength=4)
    num_periods = whole[-1] // period_ns + 1
    assert num_periods > 20
    rates = counts / num_periods / 250
    assert rates[0] == 0
    assert rates[1:] == pytest.approx([2, 4, 2], rel=0.05)


def test_arrivals_cycle_of_equal_parts_are_poisson_arrivals():
    """The same draws, spread alike."""
    cycle = arrivals_ns(kind="cycle", rate_rps=20, pattern=[3, 3, 3], period_s=7)
    assert cycle == pytest.approx(arrivals_ns(kind="poisson", rate_rps=20), abs=2)


def test_arrivals_cycle_pattern_of_zeros_is_refused():
    """There would be no arrival, ever."""
    with pytest.raises(ValidationError, match="above 0"):
        ARRIVALS.validate_python({"kind": "cycle", "rate_rps": 1, "pattern": [0, 0]})
