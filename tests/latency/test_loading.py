"""Step times with loads from host memory in them."""

import numpy as np
import pytest

from sim.core.batch import Batch, ForwardMode, PrefillRow
from sim.latency.features import line_features, step_features
from sim.latency.model import Ranged, RangeReport, StepTime, latency_source
from sim.latency.wrappers import LoadingLatency, LoadTimes
from sim.testing.contracts import LatencyModelContract
from tests.support.facts import facts_of
from tests.support.latency_steps import extend_step
from tests.support.serve import linear_latency


class TestLoadingLatency(LatencyModelContract):
    """A linear model with loads."""

    @pytest.fixture
    def make_model(self):
        return lambda: LoadingLatency(linear_latency(host_s=1e-4), LoadTimes(123.4, 7))


@pytest.mark.parametrize(
    ("parts", "compute_ns", "load_ns", "expected_ns"),
    [
        (1, 500, 300, 800),
        (4, 500, 300, 575),
        (4, 300, 500, 575),
        (4, 5, 3, 6),
        (1000, 1, 1, 2),
    ],
)
def test_load_times_are_those_of_two_machines_in_line(parts, compute_ns, load_ns, expected_ns):
    """The longer of the two without gaps, and one part of the other; parts are rounded up."""
    assert LoadTimes(load_ns / 10, parts).device_ns(compute_ns, 10) == expected_ns


def test_load_times_part_by_part_give_the_same():
    """A load part arrives after the one before; a part runs when it is there and the last is done.

    Whole numbers of parts, so that nothing is rounded."""
    rng = np.random.default_rng(1)
    for parts in (1, 2, 5, 32):
        for compute, load in rng.integers(1, 1000, (20, 2)).tolist():
            done = 0
            for part in range(1, parts + 1):
                done = max(done, part * load) + compute
            assert LoadTimes(parts * load, parts).device_ns(parts * compute, 1) == done


def test_step_that_loads_nothing_takes_the_model_s_time():
    """Host time never changes."""
    step = extend_step((0, 100))
    usual = linear_latency(host_s=1e-4)
    loading = LoadingLatency(usual, LoadTimes(1000.0))
    assert loading.step_ns(step) == usual.step_ns(step)
    device_ns, host_ns = usual.step_ns(step)
    loads = step.copy()
    loads.num_loaded_tokens = 64
    assert loading.step_ns(loads) == StepTime(device_ns + 64_000, host_ns)


def test_features_count_what_is_loaded_over_all_rows():
    """Of a batch, and of the line that a log has of it."""
    rows = (
        PrefillRow("a", 48, 10, 0, samples=True, num_loaded_tokens=32),
        PrefillRow("b", 16, 4, 0, samples=True),
        PrefillRow("c", 16, 4, 0, samples=True, num_loaded_tokens=16),
    )
    features = step_features(Batch(ForwardMode.EXTEND, rows, (), 98, 0))
    assert features.num_loaded_tokens == 48
    line = {"mode": "extend", "prefill": [["a", 48, 10], ["b", 16, 4], ["c", 16, 4]]}
    line |= {"n_decode": 0, "ctx": 98, "loaded": [["a", 32], ["c", 16]]}
    assert facts_of(line_features(line)) == facts_of(features)


def test_loading_latency_says_what_its_model_says_of_itself():
    """Where its times are from, and how far it was measured."""

    class Measured:
        source = "elsewhere"

        def left_range(self):
            return RangeReport(num_steps=7)

    loading = LoadingLatency(Measured(), LoadTimes(1.0))
    assert latency_source(loading) == "elsewhere"
    assert isinstance(loading, Ranged)
    assert loading.left_range() == RangeReport(num_steps=7)
    plain = LoadingLatency(linear_latency(), LoadTimes(1.0))
    assert latency_source(plain) is None
    assert plain.left_range() == RangeReport()
