"""The queue of a GPU: order, asynchronous results, and times on the host's clock."""

import time
from itertools import pairwise

import torch

from realrun.device.cuda_stream import CudaStream

# About 50 ms of a GPU's cycles.
LONG = 100_000_000
# Tolerance of mapping an event to the host's clock.
SLACK_NS = 200_000


def device():
    return torch.device("cuda", torch.cuda.current_device())


def slow(number, cycles=LONG):
    torch.cuda._sleep(cycles)
    return torch.full((3,), number, device="cuda")


def test_cuda_stream_results_come_later_and_in_order():
    """Submitting does not wait; several results may be outstanding."""
    stream = CudaStream(device())
    steps = [stream.submit(lambda number=number: slow(number)) for number in range(4)]
    assert not steps[0].is_done()
    assert [submitted.result().tolist() for submitted in steps] == [[n] * 3 for n in range(4)]
    assert all(submitted.is_done() for submitted in steps)


def test_cuda_stream_times_lie_on_the_hosts_clock():
    """Steps take the device's time, begin when they can, and never overlap."""
    stream = CudaStream(device())
    stream.submit(lambda: slow(0, 1000)).result()
    before_ns = time.perf_counter_ns()
    steps = [stream.submit(lambda: slow(1)) for _ in range(3)]
    for submitted in steps:
        submitted.result()
    after_ns = time.perf_counter_ns()
    assert before_ns - SLACK_NS <= steps[0].start_ns
    assert steps[-1].end_ns <= after_ns + SLACK_NS
    for submitted in steps:
        assert 20_000_000 < submitted.forward_ns < 200_000_000
        assert submitted.forward_ns == submitted.end_ns - submitted.start_ns
    for first, second in pairwise(steps):
        assert 0 <= second.start_ns - first.end_ns < SLACK_NS


def test_cuda_stream_prepared_copies_come_before_the_work():
    """What is copied while preparing a step is there when it runs, and not before the last did."""
    stream = CudaStream(device())
    inputs = torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    steps = []
    for number in range(3):
        host = torch.tensor([float(number)]).pin_memory()
        stream.prepare(lambda host=host: inputs.copy_(host, non_blocking=True))

        def work():
            torch.cuda._sleep(LONG // 10)
            return inputs + 1

        steps.append(stream.submit(work))
    assert [submitted.result().tolist() for submitted in steps] == [[1.0], [2.0], [3.0]]


def test_cuda_stream_synchronise_waits_for_everything():
    """Afterwards all is done."""
    stream = CudaStream(device())
    submitted = stream.submit(lambda: slow(5))
    stream.synchronise()
    assert submitted.is_done()
    stream.close()
