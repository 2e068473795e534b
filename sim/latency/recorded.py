"""Step times replayed from the decision log of an earlier run, in order."""

from pathlib import Path

from sim.core.arrays import Int64
from sim.core.errors import InputError
from sim.latency.features import StepFeatures
from sim.latency.model import StepTime
from sim.latency.step_log import read_step_times


class RecordedLatency:
    """Step i takes as long as step i of the log, whatever it computes."""

    def __init__(self, path: Path, device_ns: Int64, host_ns: Int64) -> None:
        """Take times of shape [num_steps], read from `path`, which error messages name."""
        self._path = path
        self._device_ns = device_ns
        self._host_ns = host_ns
        self._next = 0

    @classmethod
    def from_file(cls, path: Path, replica: int = 0) -> "RecordedLatency":
        """Read a server's steps of a decision log, plain or gzipped.

        Raises:
            InputError: see `read_step_times`.
        """
        return cls(path, *read_step_times(path, replica))

    def step_ns(self, step: StepFeatures) -> StepTime:
        self._check_left()
        return StepTime(int(self._device_ns[self._next]), int(self._host_ns[self._next]))

    def decode_run_ns(
        self,
        first: StepFeatures,
        num_steps: int,
    ) -> tuple[Int64, Int64]:
        self._check_left()
        coming = slice(self._next, self._next + num_steps)
        return self._device_ns[coming].copy(), self._host_ns[coming].copy()

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        self._next += num_steps

    def _check_left(self) -> None:
        if self._next >= len(self._device_ns):
            num_steps = len(self._device_ns)
            raise InputError(
                f"{self._path}: the run needs more than its {num_steps} recorded steps"
            )
