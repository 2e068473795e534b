"""The stages of a pipeline: how layers, memory and a step's time are shared out over them."""

from collections.abc import Callable, Sequence
from typing import Protocol, cast, runtime_checkable

from sim.core.errors import InputError
from sim.latency.features import StepFeatures
from sim.latency.model import LatencyModel
from sim.latency.wrappers import LatencyWrapper

# From the layers of a model and the number of stages to the layers of each stage.
SplitLayers = Callable[[int, int], list[int]]


@runtime_checkable
class HasHead(Protocol):
    """A latency model that knows the time of the output head."""

    def head_ns(self, step: StepFeatures) -> int:
        """Device time of the output head, a part of the step's."""
        ...


class StagedLatency(LatencyWrapper):
    """Another model's times, and what each stage of a pipeline has of them.

    Every stage has the share of its layers in all of the step but the output head, which belongs to
    the last stage. So the times of the stages add up to the step's device time.
    """

    def __init__(self, model: LatencyModel, kernels: LatencyModel, layers: Sequence[int]) -> None:
        """Share out a model's times.

        Args:
            model: the times of whole steps, through all stages.
            kernels: the model below, without what the host adds; it knows the output head.
            layers: how many each stage has.
        """
        super().__init__(model)
        self._head = cast("HasHead", kernels) if isinstance(kernels, HasHead) else None
        self._num_layers = sum(layers)
        self._layers_before = [sum(layers[: stage + 1]) for stage in range(len(layers))]

    @property
    def num_stages(self) -> int:
        return len(self._layers_before)

    def stages_ns(self, step: StepFeatures, device_ns: int) -> list[int]:
        """What each stage has of the device time of a step."""
        head_ns = 0 if self._head is None else min(self._head.head_ns(step), device_ns)
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
