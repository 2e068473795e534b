"""A latency model's times with what the host adds to steps, which `sim.latency.host` describes."""

from typing import NamedTuple

import numpy as np

from sim.core.arrays import Int64
from sim.core.units import seconds_to_ns
from sim.latency.features import StepFeatures
from sim.latency.host import HostSection
from sim.latency.model import LatencyModel, StepTime
from sim.latency.wrappers import LatencyWrapper


class HostedServer(NamedTuple):
    """What the host's costs depend on.

    Attributes:
        num_layers: layers of the model.
        num_subquadratic: those of them with linear or sparse attention.
        prefill_graph_tokens: new tokens of the largest step with prefill rows that runs in CUDA
            graphs; 0: none does.
    """

    num_layers: int
    num_subquadratic: int = 0
    prefill_graph_tokens: int = 0


class HostedLatency(LatencyWrapper):
    """Another model's times with the host's."""

    def __init__(self, model: LatencyModel, host: HostSection, server: HostedServer) -> None:
        super().__init__(model)
        self._step_ns = seconds_to_ns(host.step_s)
        self._row_ns = seconds_to_ns(host.row_s)
        gap_s = host.layer_gap_s * server.num_layers
        gap_s += host.subquadratic_layer_gap_s * server.num_subquadratic
        self._gap_ns = seconds_to_ns(host.step_gap_s + gap_s)
        self._row_gap_ns = seconds_to_ns(host.row_gap_s)
        self._token_gap_s = host.prefill_token_gap_s
        launch_s = host.layer_launch_s * server.num_layers
        launch_s += host.subquadratic_layer_launch_s * server.num_subquadratic
        self._launch_ns = seconds_to_ns(launch_s)
        self._prefill_graph_tokens = server.prefill_graph_tokens
        # 0 once the server has compiled its kernels.
        self._cold_start_ns = seconds_to_ns(host.cold_start_s)
        self._cold_start_tokens = host.cold_start_tokens

    def step_ns(self, step: StepFeatures) -> StepTime:
        device_ns, host_ns = self._model.step_ns(step)
        if self._is_launched_by_host(step):
            device_ns = max(device_ns, self._launch_ns)
        if self._is_cold_start(step):
            device_ns += self._cold_start_ns
        rows = step.num_prefill_rows + step.num_decode_rows
        return StepTime(
            device_ns + self._gap_ns + self._row_gap_ns * rows + self._tokens_ns(step),
            host_ns + self._step_ns + self._row_ns * rows,
        )

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        device_ns, host_ns = self._model.decode_run_ns(first, num_steps)
        if self._is_launched_by_host(first):
            device_ns = np.maximum(device_ns, self._launch_ns)
        if self._is_cold_start(first):
            device_ns = device_ns.copy()
            device_ns[0] += self._cold_start_ns
        rows = first.num_prefill_rows + first.num_decode_rows
        return (
            device_ns + (self._gap_ns + self._row_gap_ns * rows + self._tokens_ns(first)),
            host_ns + (self._step_ns + self._row_ns * rows),
        )

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        if self._is_cold_start(first):
            self._cold_start_ns = 0
        self._model.consume(first, num_steps)

    def _is_launched_by_host(self, step: StepFeatures) -> bool:
        return step.num_prefill_rows > 0 and step.num_tokens > self._prefill_graph_tokens

    def _is_cold_start(self, step: StepFeatures) -> bool:
        return self._cold_start_ns > 0 and step.num_prefill_tokens >= self._cold_start_tokens

    def _tokens_ns(self, step: StepFeatures) -> int:
        """What the new tokens add if any rank has prefill rows; the same for each of the ranks."""
        if not (self._token_gap_s and (step.group_prefills or step.num_prefill_rows)):
            return 0
        return seconds_to_ns(self._token_gap_s * (step.num_group_tokens or step.num_tokens))
