"""Step times looked up in a recording by what a step computes."""

import pytest

from calibrate.nearest_step import NearestStepLatency
from sim.core.batch import ForwardMode
from sim.latency.features import StepFeatures
from sim.testing.contracts import LatencyModelContract


def step(mode, prefill, rows, context, start_ns, device_ns, host_ns=7):
    return {
        "mode": mode,
        "prefill": [["", *row] for row in prefill],
        "n_decode": rows,
        "ctx": context + sum(map(sum, prefill)),
        "t_start_ns": start_ns,
        "t_end_ns": start_ns + device_ns,
        "host_ns": host_ns,
    }


def decode(rows, context):
    return StepFeatures(ForwardMode.DECODE, 0, 0, 0, rows, context, context)


@pytest.fixture
def recording():
    """A prompt, two decode steps of it, a second prompt, and a decode step of both."""
    return [
        step("extend", [(0, 100)], 0, 0, 0, 1_000),
        step("decode", [], 1, 101, 0, 100),
        step("decode", [], 1, 102, 0, 110),
        step("extend", [(0, 50)], 0, 0, 0, 500),
        step("decode", [], 2, 154, 0, 150),
        step("decode", [], 2, 156, 0, 160),
    ]


class TestAlikeLatency(LatencyModelContract):
    """Also for modes that no recorded step has, and beyond all recorded sizes."""

    @pytest.fixture
    def make_model(self, recording):
        return lambda: NearestStepLatency(recording, overlaps=False)


def times(model, *steps):
    """Device times of these steps, one after the other."""
    found = []
    for features in steps:
        found.append(model.step_ns(features).device_ns)
        model.consume(features, 1)
    return found


def test_alike_same_steps_take_their_own_times(recording):
    """In the recorded order every step is its own most alike one."""
    prefill = StepFeatures(ForwardMode.EXTEND, 100, 10_000, 1, 0, 0, 100)
    assert times(
        NearestStepLatency(recording, overlaps=False), prefill, decode(1, 101), decode(1, 102)
    ) == [
        1_000,
        100,
        110,
    ]


def test_alike_shifted_step_takes_the_time_of_its_composition(recording):
    """The second prompt comes a step early: its time, not that of the step of this number."""
    late = StepFeatures(ForwardMode.EXTEND, 50, 2_500, 1, 0, 0, 50)
    assert times(
        NearestStepLatency(recording, overlaps=False), decode(1, 101), late, decode(2, 153)
    ) == [
        100,
        500,
        150,
    ]


def test_alike_equal_compositions_are_taken_nearest_first(recording):
    """Of two equal ones, the one that lies ahead."""
    twice = [*recording, *({**line, "t_end_ns": line["t_end_ns"] + 5} for line in recording)]
    model = NearestStepLatency(twice, overlaps=False)
    assert times(model, decode(1, 101), decode(1, 102), decode(2, 156)) == [100, 110, 160]
    assert times(model, decode(1, 101)) == [105]


def test_alike_run_longer_than_the_recording_goes_on(recording):
    """The last steps stand for those beyond."""
    device_ns, host_ns = NearestStepLatency(recording, overlaps=False).decode_run_ns(
        decode(2, 154), 5
    )
    assert device_ns.tolist() == [150, 160, 160, 160, 160]
    assert host_ns.tolist() == [7] * 5


def test_alike_mode_never_recorded_takes_the_nearest_of_another(recording):
    """A mixed step of one decode row and a prompt of 100 is most like the prompt."""
    mixed = StepFeatures(ForwardMode.MIXED, 100, 10_000, 1, 1, 101, 201)
    assert NearestStepLatency(recording, overlaps=False).step_ns(mixed).device_ns in {
        150,
        160,
        1_000,
    }
