"""A device's stream: it runs steps in the order of submission; results come later.

`CpuStream` uses a thread, `CudaStream` (in `realrun.device.cuda_stream`) a CUDA stream.
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
    """A step in a device's stream. Its times are known after `result` has returned.

    Attributes:
        start_ns: when the device started it, on the clock of `time.perf_counter_ns`.
        end_ns: when its output was ready on the device.
        forward_ns: device time from start to end.
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
        """Wait for the output and return it as a host array; later calls return the same array.

        Raises:
            Exception: the exception that the work raised while it ran.
        """
        ...


class DeviceStream(Protocol):
    """A device's stream. Only one host thread may use it."""

    def prepare(self, work: Callable[[], T]) -> T:
        """Call `work`, a step's host work, now. Copies that it enqueues run before the step."""
        ...

    def submit(self, work: Callable[[], Tensor], *, busy_ns: int = 0) -> SubmittedStep:
        """Add work to the end of the stream. Its output is copied to the host.

        Args:
            work: called once, in inference mode. It must not make the host wait for the device.
            busy_ns: how long a GPU is kept busy before the work. If the host launches all of it in
                this time, the step's times do not contain waits for launches. A CPU, which has no
                launches, ignores this.
        """
        ...

    def synchronise(self) -> None:
        """Wait until all submitted work has run."""
        ...

    def close(self) -> None:
        """Wait for all submitted work, then close the stream."""
        ...


class SubmittedStepTimes(ABC):
    """Base class: the times of a `SubmittedStep`, from its start and end."""

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
        """Start and end of the step. Raises InvariantError before they are known."""


class CpuStep(SubmittedStepTimes):
    """A `SubmittedStep` on a CPU. The worker thread runs it and sets its result."""

    def __init__(self, work: Callable[[], Tensor]) -> None:
        self._work: Callable[[], Tensor] | None = work
        self._done = threading.Event()
        self._output: Array | None = None
        self._error: Exception | None = None
        self._span_ns = (0, 0)

    def run(self) -> None:
        """Run the work. Called once, by the worker thread."""
        if self._work is None:
            raise InvariantError("a step ran twice")
        start_ns = time.perf_counter_ns()
        try:
            with torch.inference_mode():
                self._output = np.array(self._work().numpy())
        except Exception as error:
            self._error = error  # `result` raises it in the caller's thread
        self._span_ns = (start_ns, time.perf_counter_ns())
        self._work = None  # frees the tensors that it refers to
        self._done.set()

    def is_done(self) -> bool:
        return self._done.is_set()

    def wait(self) -> None:
        """Wait until the step has run, even if it failed."""
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
            raise InvariantError("a step's times were read before it finished")
        return self._span_ns


class CpuStream:
    """A stream with one worker thread: the host continues while a step computes, as with a GPU.

    Torch releases the interpreter lock while it computes. So with two or more cores host and step
    do run at the same time.
    """

    def __init__(self) -> None:
        self._steps: queue.SimpleQueue[CpuStep | None] = queue.SimpleQueue()
        self._last: CpuStep | None = None
        self._worker = threading.Thread(target=self._run_all, name="device", daemon=True)
        self._worker.start()

    def prepare(self, work: Callable[[], T]) -> T:
        """Call `work`. Unlike on a GPU, there are no copies that must run in a certain order."""
        return work()

    def submit(self, work: Callable[[], Tensor], *, busy_ns: int = 0) -> CpuStep:
        """Give work to the worker thread. `SubmittedStep.result` raises its exceptions."""
        if not self._worker.is_alive():
            raise InvariantError("work was submitted to a closed stream")
        submitted = self._last = CpuStep(work)
        self._steps.put(submitted)
        return submitted

    def synchronise(self) -> None:
        """Wait for the last step; all others finish before it."""
        if self._last is not None:
            self._last.wait()

    def close(self) -> None:
        self._steps.put(None)
        self._worker.join()

    def _run_all(self) -> None:
        while (submitted := self._steps.get()) is not None:
            submitted.run()
