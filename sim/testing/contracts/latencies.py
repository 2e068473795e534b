"""What every latency model must do."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from sim.core.batch import ForwardMode
from sim.latency.build import LATENCY, GuardedLatency, LatencySetting, ServedBy
from sim.latency.features import StepFeatures
from sim.latency.model import LatencyModel, Ranged
from sim.testing.contracts.contract import Contract
from sim.user.objects import UserObject


def _decode_step(rows: int, context: int, longest: int = 0, shortest: int = 0) -> StepFeatures:
    return StepFeatures(ForwardMode.DECODE, 0, 0, 0, rows, context, context, 0, longest, shortest)


# The contexts of the longest and the shortest row are known, or one of them, or neither.
_DECODE_STEPS = tuple(
    _decode_step(rows, rows * context)
    for rows in (1, 3, 64, 257)
    for context in (1, 17, 1_000, 99_999)
) + tuple(
    _decode_step(rows, rows * 800, longest, shortest)
    for rows in (2, 64)
    for longest, shortest in ((1_010, 0), (5_000, 200), (801, 799), (0, 1), (800, 800))
)
_OTHER_STEPS = (
    StepFeatures(ForwardMode.EXTEND, 1, 1, 1, 0, 0, 1),
    StepFeatures(ForwardMode.EXTEND, 8_192, 8_192 * 8_192, 4, 0, 0, 8_192),
    StepFeatures(ForwardMode.MIXED, 500, 500 * 700, 1, 30, 40_000, 40_600),
    StepFeatures(ForwardMode.MIXED, 500, 500 * 700, 1, 30, 40_000, 40_600, 0, 9_000, 20),
)


class LatencyModelContract(Contract):
    """Fixture `make_model: Callable[[], LatencyModel]`; a recording needs 40 steps or more."""

    fixture = "make_model"
    kind = LATENCY
    num_steps = 37

    def context(self) -> tuple[object, ...]:
        return (LatencySetting(None, None, Path(), ServedBy()),)

    def guarded(self, user: UserObject) -> LatencyModel:
        return GuardedLatency(user)

    def test_latency_decode_run_equals_its_steps(
        self, make_model: Callable[[], LatencyModel]
    ) -> None:
        """Element i of a run is what `step_ns` says of step i, to the bit."""
        for first in _DECODE_STEPS:
            device_ns, host_ns = make_model().decode_run_ns(first, self.num_steps)
            assert device_ns.dtype == host_ns.dtype == np.int64
            assert 1 <= len(device_ns) == len(host_ns) <= self.num_steps
            model, step = make_model(), first
            for i in range(len(device_ns)):
                assert model.step_ns(step) == (int(device_ns[i]), int(host_ns[i]))
                model.consume(step, 1)
                step = step.next_decode()

    def test_latency_any_step_takes_whole_positive_time(
        self, make_model: Callable[[], LatencyModel]
    ) -> None:
        """Device time is an int of at least 1 ns, host time one of at least 0."""
        for step in _DECODE_STEPS + _OTHER_STEPS:
            device_ns, host_ns = make_model().step_ns(step)
            assert type(device_ns) is type(host_ns) is int
            assert device_ns >= 1
            assert host_ns >= 0

    def test_latency_asking_changes_nothing(self, make_model: Callable[[], LatencyModel]) -> None:
        """A second call gives the same answer, even if the caller changed a run's arrays.

        Those that nobody can change may be shared.
        """
        model = make_model()
        for step in _DECODE_STEPS + _OTHER_STEPS:
            assert model.step_ns(step) == model.step_ns(step)
        for first in _DECODE_STEPS:
            run = model.decode_run_ns(first, self.num_steps)
            before = [times.tolist() for times in run]
            for times in run:
                if times.flags.writeable:
                    times[:] = -1
            again = model.decode_run_ns(first, self.num_steps)
            assert [times.tolist() for times in again] == before

    def test_latency_no_answer_depends_on_what_was_asked(
        self, make_model: Callable[[], LatencyModel]
    ) -> None:
        """Only consumed steps change later answers; asking for other steps does not."""
        asked, silent = make_model(), make_model()
        for first in _DECODE_STEPS[:3]:
            for step in _OTHER_STEPS:
                asked.step_ns(step)
            asked.decode_run_ns(_DECODE_STEPS[-1], self.num_steps)
            for model in (asked, silent):
                model.consume(first, 5)
            ranges = [m.left_range() if isinstance(m, Ranged) else None for m in (asked, silent)]
            assert ranges[0] == ranges[1]
            assert asked.step_ns(first) == silent.step_ns(first)
