"""Every latency model keeps the contract of latency models."""

from pathlib import Path

import numpy as np
import pytest

from sim.latency.hardware import load_hardware
from sim.latency.linear import LinearLatency
from sim.latency.model_key import model_table
from sim.latency.recorded import RecordedLatency
from sim.latency.roofline import RooflineLatency
from sim.latency.shape_files import load_model_shape
from sim.testing.contracts import LatencyModelContract


class TestLinearLatency(LatencyModelContract):
    """A weighted sum, with weights whose products round up and down."""

    @pytest.fixture(
        params=[
            (0.005, 4e-5, 5e-5, 2e-8, 0),
            (0.0, 0.0, 1 / 3e4, 1 / 7e8, 0),
            (0, 0, 0, 0, 0),
            (0.005, 4e-5, 5e-5, 2e-8, 0.2),
        ]
    )
    def make_model(self, request):
        step_s, prefill_s, decode_s, context_s, cold_start_s = request.param
        return lambda: LinearLatency(
            step_s=step_s,
            per_prefill_token_s=prefill_s,
            per_decode_request_s=decode_s,
            per_context_token_s=context_s,
            host_s=0.0007,
            cold_start_s=cold_start_s,
        )


class TestRooflineLatency(LatencyModelContract):
    """Every model of the packaged table."""

    @pytest.fixture(params=sorted(model_table()))
    def make_model(self, request):
        shape = load_model_shape(request.param, Path())
        hardware = load_hardware("h200-sxm")
        return lambda: RooflineLatency(shape, hardware, mfu=0.71, bandwidth_efficiency=0.83)


class TestRecordedLatency(LatencyModelContract):
    """A long recording, and one that ends within a run."""

    @pytest.fixture(params=[60, 20])
    def make_model(self, request):
        rng = np.random.default_rng(1)
        device_ns = rng.integers(1, 10**9, request.param)
        host_ns = rng.integers(0, 10**6, request.param)
        return lambda: RecordedLatency(Path("recording"), device_ns, host_ns)
