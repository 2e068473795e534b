"""The device's queue of work: steps run in the order they were submitted, results come later.

`CpuStream` is a thread; `CudaStream` (`realrun.cuda_stream`) is a stream of a GPU.
"""

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sim.core.errors import InvariantError

T = TypeVar("T")
Array = NDArray[np.generic]


class SubmittedStep(Protocol):
    """One submitted step. Its times are known once `result` has returned.

    Attributes:
        start_ns: when the device began with it, as time.perf_counter_ns would have said.
        end_ns: when its output was there, on the device.
        forward_ns: device time between the two.
    """

    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def forward_ns(self) -> int: ...

    def is_done(self) -> bool:
        """Whether `result` would return at once."""
        ...

    def result(self) -> Array:
        """Wait for the output and bring it to the host. Asked again, it gives the same.

        Raises:
            Exception: what the work raised, if it did so while it ran.
        """
        ...


class DeviceStream(Protocol):
    """A device's queue. Used by one host thread."""

    def prepare(self, work: Callable[[], T]) -> T:
        """Do a step's host work now; copies it enqueues run in turn, before the step's own work."""
        ...

    def submit(self, work: Callable[[], Tensor]) -> SubmittedStep:
        """Run work after all that was submitted before; its output is brought to the host.

        Args:
            work: called once, in inference mode. What it enqueues on the device must not need
                the host to wait.
        """
        ...

    def synchronise(self) -> None:
        """Wait until everything submitted has run."""
        ...

    def close(self) -> None:
        """Let what was submitted finish, then give the queue up."""
        ...


class DeviceTimes(ABC):
    """The times of a `SubmittedStep`, out of what its device knows of them."""

    @property
    def start_ns(self) -> int:
        return self._known_span_ns()[0]

    @property
    def end_ns(self) -> int:
        return self._known_span_ns()[1]

    @property
    def forward_ns(self) -> int:
        start_ns, end_ns = self._known_span_ns()
        return end_ns - start_ns

    @abstractmethod
    def _known_span_ns(self) -> tuple[int, int]:
        """Start and end; an InvariantError before they are known."""


class CpuStep(DeviceTimes):
    """A step on a CPU: a `SubmittedStep`, filled in by the worker thread."""

    def __init__(self, work: Callable[[], Tensor]) -> None:
        self._work: Callable[[], Tensor] | None = work
        self._done = threading.Event()
        self._output: Array | None = None
        self._error: Exception | None = None
        self._span_ns = (0, 0)

    def run(self) -> None:
        """Run the work. Called once, by the worker thread."""
        if self._work is None:
            raise InvariantError("a submitted ran twice")
        start_ns = time.perf_counter_ns()
        try:
            with torch.inference_mode():
                self._output = np.array(self._work().numpy())
        except Exception as error:
            self._error = error  # it belongs to whoever asks for the result
        self._span_ns = (start_ns, time.perf_counter_ns())
        self._work = None  # what it holds on to may be large
        self._done.set()

    def is_done(self) -> bool:
        return self._done.is_set()

    def wait(self) -> None:
        """Wait until it has run, whether or not it failed."""
        self._done.wait()

    def result(self) -> Array:
        self._done.wait()
        if self._error is not None:
            raise self._error
        if self._output is None:
            raise InvariantError("a finished step without output")
        return self._output

    def _known_span_ns(self) -> tuple[int, int]:
        if not self._done.is_set():
            raise InvariantError("the times of a step that has not finished")
        return self._span_ns


class CpuStream:
    """A queue with one worker thread: the host goes on while the step computes, as on a GPU.

    Torch computes outside the interpreter lock, so the overlap is real where there are cores.
    """

    def __init__(self) -> None:
        self._steps: queue.SimpleQueue[CpuStep | None] = queue.SimpleQueue()
        self._last: CpuStep | None = None
        self._worker = threading.Thread(target=self._run_all, name="device", daemon=True)
        self._worker.start()

    def prepare(self, work: Callable[[], T]) -> T:
        """On a CPU host work needs no order: plans are fresh tensors, and nothing is copied."""
        return work()

    def submit(self, work: Callable[[], Tensor]) -> CpuStep:
        """Hand work to the worker thread. What it raises, `SubmittedStep.result` raises."""
        if not self._worker.is_alive():
            raise InvariantError("a closed stream was given work")
        submitted = self._last = CpuStep(work)
        self._steps.put(submitted)
        return submitted

    def synchronise(self) -> None:
        """Wait for the last submitted: they finish in order."""
        if self._last is not None:
            self._last.wait()

    def close(self) -> None:
        self._steps.put(None)
        self._worker.join()

    def _run_all(self) -> None:
        while (submitted := self._steps.get()) is not None:
            submitted.run()
