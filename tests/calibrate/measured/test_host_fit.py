"""Known host times are found again from time stamps alone."""

import numpy as np
import pytest

from calibrate.measured.host_fit import fit_host_times
from calibrate.measured.host_trials import HostTrials
from calibrate.measured.pairs import Selection
from calibrate.measured.twin import Twin
from sim.core.errors import InputError
from sim.core.units import seconds_to_ns
from sim.des.deployment import Deployment
from sim.des.run import simulate
from sim.latency.host import HostTimes
from sim.latency.model import StepTime
from sim.scenario.build import build
from sim.scenario.overrides import Change
from tests.support.measured_runs import Disturbance

NONE = HostTimes(0.0, 0.0)
ALL = Selection()
# Twice as many requests as the scenario has: enough to tell two times apart.
LONG = "workload.num_requests=160"


class HostLatency:
    """A latency whose host time is a constant, and a time for each request in the step."""

    def __init__(self, device, times):
        self._device = device
        self._times = times

    def step_ns(self, step):
        return StepTime(self._device.step_ns(step).device_ns, self._host_ns(step))

    def decode_run_ns(self, first, num_steps):
        device_ns, _ = self._device.decode_run_ns(first, num_steps)
        return device_ns, np.full(len(device_ns), self._host_ns(first), dtype=np.int64)

    def consume(self, first, num_steps):
        self._device.consume(first, num_steps)

    def _host_ns(self, step):
        rows = step.num_decode_rows + step.num_prefill_rows
        return seconds_to_ns(self._times.host_s + rows * self._times.per_request_s)


def fit_both(measured, serve):
    return fit_host_times(
        HostTrials(
            measured, serve, selection=ALL, start=NONE, per_request=True, say=lambda line: None
        )
    )


def write_layers(path):
    """Writes step times of a whole model, in ms: one prompt, several prompts, decode batches."""
    sizes = "prompt_size,batch_size,token_size,prompt_time,token_time"
    rows = ["512,1,128,10,5", "64,1,128,4,4.9", "2048,1,128,38,5.3"]
    rows += [f"512,{batch},128,{10 * batch},{5 + batch / 10}" for batch in (2, 8, 16)]
    lines = [f"model,hardware,tensor_parallel,{sizes}", *(f"m,h,4,{row}" for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def fit(load):
    """Fits the scenario's constant to a measured run."""

    def run(measured, *options, start=NONE, selection=ALL, lines=None):
        twin = Twin(load(*options))
        said = [] if lines is None else lines

        def serve(times):
            return twin.run_with([Change("latency.host_s", times.host_s, "fit")])

        return fit_host_times(
            HostTrials(
                measured,
                serve,
                selection=selection,
                start=start,
                per_request=False,
                say=said.append,
            )
        )

    return run


@pytest.fixture(scope="module")
def two_parts(load):
    """Latency with both host times, and a fit of both."""
    built = build(load(LONG))

    def latency(times):
        return HostLatency(built.latencies[0], times)

    def run(measured):
        def serve(times):
            return simulate(
                built.workload, Deployment.of_one_kind(built.scheduler, [latency(times)])
            )

        return fit_both(measured, serve)

    return latency, run


@pytest.mark.parametrize("host_s", [0.0, 0.0003, 0.002, 0.02])
def test_fit_finds_the_host_time_of_a_run_without_noise(fit, serve, host_s):
    """The error is at most a hundredth of a step, even from a far start."""
    result = fit(serve(f"latency.host_s={host_s}"))
    assert result.times.host_s == pytest.approx(host_s, abs=5e-5)
    assert result.times.per_request_s == 0
    assert result.objective_after < 0.015
    assert result.num_simulations <= 25
    assert result.num_requests == 80


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("selection", [ALL, Selection(first=40)])
def test_fit_finds_the_host_time_through_noise_as_well_as_it_says(fit, serve, seed, selection):
    """With 10 % noise the error is within a few of the estimated standard errors."""
    noisy = Disturbance(noise=0.1, seed=seed)
    result = fit(serve("latency.host_s=0.002", disturbance=noisy), selection=selection)
    error_s = result.std_errors.host_s
    assert 1e-5 < error_s < 3e-4
    assert abs(result.times.host_s - 0.002) < 4 * error_s
    assert result.objective_after < result.objective_before / 3


def test_fit_starts_from_any_value_and_is_the_same_twice(fit, serve):
    """Two starts give the same estimate; one start gives equal digits twice."""
    measured = serve("latency.host_s=0.002", disturbance=Disturbance(noise=0.05))
    above = fit(measured, start=HostTimes(0.01, 0.0))
    below = fit(measured)
    assert above.times.host_s == pytest.approx(below.times.host_s, abs=3e-5)
    again = fit(measured)
    assert (again.times, again.std_errors) == (below.times, below.std_errors)


def test_fit_tells_of_every_trial(fit, serve):
    """One line a simulation, the first one with the scenario's own times."""
    lines = []
    result = fit(serve("latency.host_s=0.002"), start=HostTimes(0.001, 0.0), lines=lines)
    assert len(lines) == result.num_simulations
    assert lines[0].startswith("simulation 1: host 1.0000 ms a step: ")


@pytest.mark.parametrize("seed", range(3))
def test_fit_tells_a_time_per_request_from_a_constant(two_parts, serve, seed):
    """Both are within a few of their standard errors, and not swapped."""
    latency, fit = two_parts
    truth = HostTimes(0.001, 1e-4)
    noisy = Disturbance(noise=0.02, seed=seed)
    result = fit(serve(LONG, disturbance=noisy, latency=latency(truth)))
    errors = result.std_errors
    assert abs(result.times.host_s - truth.host_s) < 4 * errors.host_s
    assert abs(result.times.per_request_s - truth.per_request_s) < 4 * errors.per_request_s
    assert errors.host_s < 0.0005
    assert errors.per_request_s < 5e-5
    assert -1 <= result.correlation < 0
    assert result.objective_after < result.objective_before / 3
    assert result.num_simulations <= 25


def test_fit_of_steps_with_equally_many_requests_cannot_tell_them_apart(load, serve):
    """One request at a time: a constant and a part per request are the same."""
    options = ("scheduler.max_running_requests=1", "workload.num_requests=20")
    built = build(load(*options))

    def run(times):
        latency = HostLatency(built.latencies[0], times)
        return simulate(built.workload, Deployment.of_one_kind(built.scheduler, [latency]))

    with pytest.raises(InputError, match=r"^--per-request: all steps have the same number"):
        fit_both(serve(*options, "latency.host_s=0.001"), run)


def test_fit_of_hidden_host_time_is_refused(fit, serve):
    """With overlap the device is always the slower one, so host time does not show."""
    overlap = "scheduler.disable_overlap_schedule=false"
    with pytest.raises(InputError, match="hidden behind the device time"):
        fit(serve(overlap, "latency.host_s=0.0001"), overlap)


def test_fit_of_layers_finds_the_host_time_that_overlap_does_not_hide(fit, serve, folder):
    """Host time is added to device time here: the estimate is the same with overlap."""
    write_layers(folder / "perf_model.csv")
    layers = "latency={kind: layers, path: perf_model.csv, tp: 4}"
    for overlap in ("true", "false"):
        options = (layers, f"scheduler.disable_overlap_schedule={overlap}")
        result = fit(serve(*options, "latency.host_s=0.002"), *options)
        assert result.times.host_s == pytest.approx(0.002, abs=5e-5)
        assert result.objective_after < 0.015


def test_fit_says_when_steps_are_too_long_already(fit, serve):
    """The estimate is 0, not negative."""
    result = fit(serve("latency.step_s=0.003"))
    assert result.times.host_s == 0
    assert result.remarks[0].startswith("host_s is 0: ")


def test_fit_of_few_requests_is_refused(fit, serve):
    """Nine requests are too few."""
    with pytest.raises(
        InputError, match="requests of two tokens or more finished in both runs; at least 10"
    ):
        fit(serve(), selection=Selection(first=9))
