"""Latency models that change another model's times, or share them out over a pipeline's stages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from mypy_extensions import mypyc_attr

from sim.core.arrays import Int64
from sim.core.errors import InputError
from sim.latency.features import StepFeatures
from sim.latency.model import (
    LatencyModel,
    Ranged,
    RangeReport,
    StepTime,
    asked_step_by_step,
    depends_on_step_alone,
    latency_source,
    launching,
)


@mypyc_attr(allow_interpreted_subclasses=True)
class LatencyWrapper:
    """Another model's times. Classes derived from it change some of them."""

    def __init__(self, model: LatencyModel) -> None:
        self._model = model
        self._launching = launching(model)
        self.num_layers = int(getattr(model, "num_layers", 0))
        self.depends_on_step_alone = depends_on_step_alone(model)

    @property
    def source(self) -> str | None:
        return latency_source(self._model)

    def step_ns(self, step: StepFeatures) -> StepTime:
        return self._model.step_ns(step)

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        return self._model.decode_run_ns(first, num_steps)

    def launch_ns(self, step: StepFeatures) -> int:
        return 0 if self._launching is None else self._launching.launch_ns(step)

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        self._model.consume(first, num_steps)

    def left_range(self) -> RangeReport:
        return self._model.left_range() if isinstance(self._model, Ranged) else RangeReport()


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """How long loads take.

    Attributes:
        ns_per_token: time to load a token's KV.
        num_parts: into how many equal parts a load and a step are divided, usually the number of
            layers. A part of the step can run when its part of the load has arrived. 1: the step
            waits for the whole load.
    """

    ns_per_token: float
    num_parts: int = 1

    def load_ns(self, num_tokens: float) -> int:
        """The time of a load alone; rounded half-even."""
        return round(num_tokens * self.ns_per_token)

    def device_ns(self, compute_ns: int, num_tokens: float) -> int:
        """The time of a step that computes for `compute_ns` and loads `num_tokens` tokens.

        The link loads part after part while the device computes part after part. If the load takes
        longer, the last part of the computation runs after the whole load. If the computation takes
        longer, it runs without gaps after the first part of the load.
        """
        load_ns = self.load_ns(num_tokens)
        parts = self.num_parts
        return max(compute_ns + -(-load_ns // parts), load_ns + -(-compute_ns // parts))


class LoadingLatency(LatencyWrapper):
    """Another model's times, longer for steps that load KV from host memory."""

    def __init__(self, model: LatencyModel, times: LoadTimes) -> None:
        super().__init__(model)
        self._times = times

    def step_ns(self, step: StepFeatures) -> StepTime:
        time = self._model.step_ns(step)
        if not step.num_loaded_tokens:
            return time
        device_ns = self._times.device_ns(time.device_ns, step.num_loaded_tokens)
        return StepTime(device_ns, time.host_ns)


class DraftingLatency(LatencyWrapper):
    """A model that knows steps without drafts, in a server that verifies some.

    Each pass of the drafter takes a share of a decode step of the same rows without drafts.
    """

    def __init__(self, model: LatencyModel, drafting_share: float, *, as_prefill: bool) -> None:
        """Wrap a model; `drafting_share` is that of all passes of a step together.

        With `as_prefill`, a row that verifies drafts costs what a prefill row of as many tokens
        costs. Otherwise the model itself knows what draft tokens cost.
        """
        super().__init__(model)
        self._drafting_share = drafting_share
        self._as_prefill = as_prefill

    def step_ns(self, step: StepFeatures) -> StepTime:
        if not step.num_draft_tokens:
            return self._model.step_ns(step)
        device_ns, host_ns = self._model.step_ns(self._as_run(step))
        if self._drafting_share:
            plain = self._model.step_ns(step.decode_rows_alone())
            device_ns += round(self._drafting_share * plain.device_ns)
        return StepTime(device_ns, host_ns)

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        if not first.num_draft_tokens:
            return self._model.decode_run_ns(first, num_steps)
        return asked_step_by_step(self.step_ns, first, num_steps)

    def launch_ns(self, step: StepFeatures) -> int:
        return super().launch_ns(self._as_run(step))

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        self._model.consume(self._as_run(first), num_steps)

    def _as_run(self, step: StepFeatures) -> StepFeatures:
        if self._as_prefill and step.num_draft_tokens:
            return step.with_verified_rows_as_prefill()
        return step


class ScaledLatency(LatencyWrapper):
    """Another model whose device times are divided by an efficiency; host times stay the same."""

    def __init__(self, model: LatencyModel, efficiency: float) -> None:
        super().__init__(model)
        self._efficiency = efficiency

    def step_ns(self, step: StepFeatures) -> StepTime:
        device_ns, host_ns = self._model.step_ns(step)
        return StepTime(max(1, round(device_ns / self._efficiency)), host_ns)

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        device_ns, host_ns = self._model.decode_run_ns(first, num_steps)
        scaled = np.rint(device_ns / self._efficiency).astype(np.int64)
        return np.maximum(scaled, 1), host_ns


# From the layers of a model and the number of stages to the layers of each stage.
SplitLayers = Callable[[int, int], list[int]]


class StagedLatency(LatencyWrapper):
    """Another model's times, and what each stage of a pipeline has of them.

    Every stage has the share of its layers in all of the step but the output head, which belongs to
    the last stage. So the times of the stages add up to the step's device time.
    """

    def __init__(self, model: LatencyModel, kernels: LatencyModel, layers: Sequence[int]) -> None:
        """Share out the times of a `model` over stages; `layers`: how many each has.

        `kernels` is the model below, without what the host adds. Its `head_ns`, if it has one, is
        the device time of the output head, a part of a step's.
        """
        super().__init__(model)
        self._head_ns: Callable[[StepFeatures], int] | None = getattr(kernels, "head_ns", None)
        self._num_layers = sum(layers)
        self._layers_before = [sum(layers[: stage + 1]) for stage in range(len(layers))]

    @property
    def num_stages(self) -> int:
        return len(self._layers_before)

    def stages_ns(self, step: StepFeatures, device_ns: int) -> list[int]:
        head_ns = 0 if self._head_ns is None else min(self._head_ns(step), device_ns)
        of_layers_ns = device_ns - head_ns
        ends_ns = [of_layers_ns * layers // self._num_layers for layers in self._layers_before]
        stages_ns = [end - start for start, end in zip([0, *ends_ns], ends_ns, strict=False)]
        stages_ns[-1] += head_ns
        return stages_ns


def spare_layers_first(num_layers: int, num_stages: int) -> list[int]:
    """Layers of each stage; layers left over go to the stages before the last, from the back.

    vLLM 0.19.0: `get_pp_indices` in distributed/utils.py.
    """
    return _with_spare_layers(num_layers, num_stages, num_stages - 2)


def spare_layers_last(num_layers: int, num_stages: int) -> list[int]:
    """Layers of each stage; layers left over go to the last stages.

    SGLang: `get_pp_indices` in distributed/utils.py.
    """
    return _with_spare_layers(num_layers, num_stages, num_stages - 1)


def _with_spare_layers(num_layers: int, num_stages: int, last: int) -> list[int]:
    """Equally many layers a stage; one more for each that is left, from stage `last` forwards."""
    if num_stages > num_layers:
        reason = f"{num_stages} stages are more than the model's {num_layers} layers"
        raise InputError(reason, key=("latency", "pp"))
    num_each, num_spare = divmod(num_layers, num_stages)
    return [num_each + (last - num_spare < stage <= last) for stage in range(num_stages)]
