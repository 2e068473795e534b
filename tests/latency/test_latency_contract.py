"""Every latency model keeps the contract of latency models."""

from pathlib import Path

import numpy as np
import pytest

from sim.latency.architectures.model_key import load_model_shape
from sim.latency.config import RooflineLatencyConfig
from sim.latency.hardware import load_hardware
from sim.latency.kinds.linear import LinearLatency
from sim.latency.kinds.recorded import RecordedLatency
from sim.latency.kinds.roofline import RooflineLatency
from sim.latency.wrappers import DraftingLatency, ScaledLatency
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


class TestScaledLatency(LatencyModelContract):
    """Another model at 0.7 and at 1.3 times its speed."""

    @pytest.fixture(params=[0.7, 1.3])
    def make_model(self, request):
        times = dict.fromkeys(("step_s", "per_prefill_token_s", "per_decode_request_s"), 1e-4)
        return lambda: ScaledLatency(
            LinearLatency(**times, per_context_token_s=1 / 7e8), request.param
        )


class TestDraftingLatency(LatencyModelContract):
    """Another model's steps, if none has a draft."""

    @pytest.fixture(params=[True, False])
    def make_model(self, request):
        times = dict.fromkeys(("step_s", "per_prefill_token_s", "per_decode_request_s"), 1e-4)
        linear = {**times, "per_context_token_s": 1 / 7e8}
        return lambda: DraftingLatency(LinearLatency(**linear), 0.3, as_prefill=request.param)


class TestRooflineLatency(LatencyModelContract):
    """One model of each kind: dense, experts with windows, latent and sparse, linear attention."""

    @pytest.fixture(
        params=[
            ("tiny", 1),
            ("gpt2", 1),
            ("openai/gpt-oss-120b", 2),
            ("deepseek-ai/DeepSeek-V3.2", 8),
            ("Qwen/Qwen3.5-397B-A17B", 4),
        ]
    )
    def make_model(self, request):
        name, tp = request.param
        shape, hardware = load_model_shape(name, Path()), load_hardware("b200-sxm")
        config = RooflineLatencyConfig(kind="roofline", mfu=0.71, bandwidth_efficiency=0.83, tp=tp)
        return lambda: RooflineLatency(shape, hardware, config)


class TestRecordedLatency(LatencyModelContract):
    """A long recording, and one that ends within a run."""

    @pytest.fixture(params=[60, 20])
    def make_model(self, request):
        rng = np.random.default_rng(1)
        device_ns = rng.integers(1, 10**9, request.param)
        host_ns = rng.integers(0, 10**6, request.param)
        return lambda: RecordedLatency(Path("recording"), device_ns, host_ns)
