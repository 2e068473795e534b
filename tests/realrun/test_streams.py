"""The queue of a CPU, and mapping a GPU's events to the host's clock."""

import threading

import numpy as np
import pytest
import torch

from realrun.device.device_clock import DeviceClock, elapsed_ns
from realrun.device.streams import CpuStream
from sim.core.errors import InvariantError

PATIENCE_S = 120


@pytest.fixture
def stream():
    stream = CpuStream()
    yield stream
    stream.close()


class Gate:
    """Work that signals when it begins, and waits until it may continue."""

    def __init__(self):
        self.begun = threading.Event()
        self.open = threading.Event()

    def __call__(self):
        self.begun.set()
        if not self.open.wait(PATIENCE_S):
            raise TimeoutError
        return torch.tensor([7])


def test_cpu_stream_several_works_run_in_order(stream):
    """Each work sees what those before it left, and each step has its own output."""
    log: list[int] = []

    def work(number):
        log.append(number)
        return torch.tensor(log)

    steps = [stream.submit(lambda number=number: work(number)) for number in range(5)]
    assert [submitted.result().tolist() for submitted in steps] == [
        list(range(number + 1)) for number in range(5)
    ]


def test_cpu_stream_work_in_progress_leaves_the_host_free(stream):
    """The host goes on while work runs, and queues more."""
    gate = Gate()
    first = stream.submit(gate)
    assert gate.begun.wait(PATIENCE_S)
    second = stream.submit(lambda: torch.tensor([8]))
    assert not first.is_done()
    assert not second.is_done()
    gate.open.set()
    assert second.result().tolist() == [8]
    assert first.is_done()
    assert first.result().tolist() == [7]


def test_cpu_stream_failed_work_raises_at_its_result_only(stream):
    """A step's error shows in its own result; the queue goes on."""

    def fail():
        raise ValueError("out of tokens")

    failed, after = stream.submit(fail), stream.submit(lambda: torch.tensor([1]))
    assert after.result().tolist() == [1]
    for _ in range(2):
        with pytest.raises(ValueError, match="out of tokens"):
            failed.result()


def test_cpu_stream_times_steps_do_not_overlap(stream):
    """Each step begins after the last ended; its device time is the span between."""
    steps = [stream.submit(lambda: torch.ones(1000).cumsum(0)) for _ in range(4)]
    stream.synchronise()
    times = [time for submitted in steps for time in (submitted.start_ns, submitted.end_ns)]
    assert times == sorted(times)
    assert [submitted.forward_ns for submitted in steps] == [
        end - start for start, end in zip(times[::2], times[1::2], strict=True)
    ]


def test_cpu_ticket_times_before_the_end_are_refused(stream):
    """There are no times of a step that still runs."""
    gate = Gate()
    submitted = stream.submit(gate)
    with pytest.raises(InvariantError):
        _ = submitted.end_ns
    gate.open.set()


def test_cpu_stream_work_runs_in_inference_mode(stream):
    """No step keeps what gradients would need."""
    submitted = stream.submit(lambda: torch.tensor([torch.is_inference_mode_enabled()]))
    assert submitted.result().all()


def test_cpu_ticket_output_is_not_changed_by_later_steps(stream):
    """A result is a copy: a step may overwrite the tensor the last one returned."""
    buffer = torch.zeros(2, dtype=torch.int64)
    first = stream.submit(lambda: buffer.add_(1))
    stream.submit(lambda: buffer.add_(1)).result()
    np.testing.assert_array_equal(first.result(), [1, 1])


def test_cpu_stream_synchronise_waits_for_failed_work_too(stream):
    """Synchronising does not raise a step's error."""
    submitted = stream.submit(lambda: torch.zeros(1).view(2))
    stream.synchronise()
    assert submitted.is_done()


def test_cpu_stream_closed_finishes_and_takes_no_more():
    """Closing lets what was submitted run."""
    stream = CpuStream()
    submitted = stream.submit(lambda: torch.tensor([3]))
    stream.close()
    assert submitted.is_done()
    with pytest.raises(InvariantError):
        stream.submit(lambda: torch.tensor([4]))


class FakeGpu:
    """A host clock, and a device clock that differs from it; events take time to run."""

    def __init__(self, delays_ns):
        self.host_ns = 1_000_000
        self.delays_ns = delays_ns

    def now_ns(self):
        return self.host_ns

    @property
    def device_ms(self):
        return self.host_ns / 1e6 - 0.25

    def event(self):
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, gpu):
        self._gpu = gpu
        self.at_ms = 0.0

    def record(self):
        """The event happens half-way through the time of waiting for it."""
        delay_ns = self._gpu.delays_ns.pop(0) if self._gpu.delays_ns else 0
        self._gpu.host_ns += delay_ns // 2
        self.at_ms = self._gpu.device_ms
        self._gpu.host_ns += delay_ns - delay_ns // 2

    def synchronize(self):
        pass

    def query(self):
        return True

    def elapsed_time(self, end_event):
        return float(np.float32(end_event.at_ms - self.at_ms))


def record_at(gpu, host_ns):
    gpu.host_ns = host_ns
    event = gpu.event()
    event.record()
    return event


def test_device_clock_events_get_the_host_time():
    """An event lies where the host's clock stood when the device came to it."""
    gpu = FakeGpu([])
    clock = DeviceClock(gpu.event, gpu.now_ns)
    start, end = record_at(gpu, 3_000_000), record_at(gpu, 5_500_000)
    assert clock.at_ns(start) == pytest.approx(3_000_000, abs=1)
    assert clock.at_ns(end) == pytest.approx(5_500_000, abs=1)
    assert elapsed_ns(start, end) == pytest.approx(2_500_000, abs=1)


def test_device_clock_slow_marks_take_the_quickest_try():
    """An interrupted attempt does not become the base."""
    gpu = FakeGpu([90_000, 4_000, 50_000])
    clock = DeviceClock(gpu.event, gpu.now_ns)
    assert clock.age_ns() == 52_000
    assert clock.at_ns(record_at(gpu, 2_000_000)) == pytest.approx(2_000_000, abs=1)


def test_device_clock_moved_base_keeps_precision_after_hours():
    """Single-precision differences stay short, though the first base is an hour old."""
    gpu = FakeGpu([])
    clock = DeviceClock(gpu.event, gpu.now_ns)
    for second in range(2, 3600, 7):
        clock.move_base(record_at(gpu, second * 1_000_000_000))
    event = record_at(gpu, 3600 * 1_000_000_000)
    assert clock.at_ns(event) == pytest.approx(3600 * 1_000_000_000, abs=1_000)
    assert clock.age_ns() < 8_000_000_000


def test_device_clock_rebase_forgets_the_error():
    """A base taken anew is exact again."""
    gpu = FakeGpu([])
    clock = DeviceClock(gpu.event, gpu.now_ns)
    gpu.host_ns = 7200 * 1_000_000_000
    clock.rebase()
    event = record_at(gpu, gpu.host_ns + 1_000)
    assert clock.at_ns(event) == pytest.approx(gpu.host_ns, abs=1)
    assert clock.age_ns() == 1_000
