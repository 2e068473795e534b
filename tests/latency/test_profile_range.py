"""Steps outside the measured range of a profile are counted when they ran."""

import pytest

from sim.latency.model import Ranged, RangeReport
from sim.latency.profile.format import read_profile
from sim.latency.profile.model import ProfileLatency
from tests.support.latency_steps import decode_step, extend_step


@pytest.fixture
def model(profile_data, write):
    """Decode was measured with 1 to 256 rows of 16 to 8,192 tokens."""
    return ProfileLatency(read_profile(write(profile_data)))


def decode(rows, mean):
    return decode_step(rows, rows * mean)


def run(model, step):
    model.step_ns(step)
    model.consume(step, 1)


def test_range_a_run_within_it_has_nothing_to_say(model):
    """Both ends belong to the range."""
    for rows, mean in ((1, 16), (256, 8_192), (30, 500)):
        run(model, decode(rows, mean))
    report = model.left_range()
    assert isinstance(model, Ranged)
    assert (report.num_steps, report.num_outside, report.exits) == (3, 0, ())
    assert str(report) == ""


def test_range_what_left_it_is_named_with_what_was_measured(model):
    """The share of steps, and each feature with how far it went."""
    for rows, mean in ((300, 500), (280, 3), (1, 500), (1, 500)):
        run(model, decode(rows, mean))
    assert str(model.left_range()) == (
        "50 % of steps lie outside the profile's range:"
        " decode: decode rows up to 300, measured up to 256;"
        " decode: mean decode context from 3, measured from 16"
    )


def test_range_asking_alone_counts_nothing(model):
    """Only what ran counts, and of a run cut short only the steps that were taken."""
    model.step_ns(decode(300, 500))
    assert model.left_range().num_steps == 0
    first = decode(4, 8_190)
    model.decode_run_ns(first, 10)
    model.consume(first, 5)
    assert (model.left_range().num_steps, model.left_range().num_outside) == (5, 2)


@pytest.mark.parametrize("rows", [1, 3, 7, 300])
@pytest.mark.parametrize("mean", [5, 8_150])
def test_range_a_run_counts_as_its_steps_do(profile_data, write, rows, mean):
    """Fast-forwarding changes nothing of the report."""
    profile = read_profile(write(profile_data))
    whole, stepped = ProfileLatency(profile), ProfileLatency(profile)
    first = decode(rows, mean)
    first.num_decode_context_tokens += 1
    whole.decode_run_ns(first, 100)
    whole.consume(first, 100)
    step = first
    for _ in range(100):
        run(stepped, step)
        step = step.next_decode()
    assert whole.left_range() == stepped.left_range()
    assert whole.left_range().num_outside > 0


def test_range_other_modes_have_their_own(model):
    """Prefill tokens, prefix and rows; a share below one percent keeps a digit."""
    run(model, extend_step((0, 7)))
    for _ in range(999):
        run(model, decode(8, 100))
    assert str(model.left_range()) == (
        "0.1 % of steps lie outside the profile's range:"
        " extend: prefill tokens from 7, measured from 16"
    )


def test_range_reports_of_several_servers_add_up(model, profile_data, write):
    """Counts add, extremes join."""
    other = ProfileLatency(read_profile(write(profile_data)))
    run(model, decode(300, 100))
    run(model, decode(3, 100))
    run(other, decode(400, 100))
    merged = RangeReport.merged([model.left_range(), other.left_range()])
    assert (merged.num_steps, merged.num_outside) == (3, 2)
    assert merged.exits[0].num_steps == 2
    assert "decode rows up to 400, measured up to 256" in str(merged)
    assert RangeReport.merged([]) == RangeReport()
