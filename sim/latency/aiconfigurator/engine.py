"""The operators of a deployment, timed by the package's compiled engine. Does not import it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sim.core.errors import InputError
from sim.latency.aiconfigurator.operators import (
    DECODE_PROBE,
    PREFILL_PROBE,
    OperatorList,
    Probe,
    TimeOperators,
)
from sim.latency.aiconfigurator.refusals import reason_of


class NoDataError(InputError):
    """The package has no times of an operator."""


class Compiled(NamedTuple):
    """What the package makes of a deployment.

    Attributes:
        source: package, licence, system, backend and version.
        system: the package's name of the GPU.
        version: of the backend.
        arguments: what the package was given: parallelism and number formats.
        model: lists the operators.
        handle: gives their times.
    """

    source: str
    system: str
    version: str
    arguments: Mapping[str, Any]
    model: Any
    handle: Any


class PackageEngine:
    """The operators of one deployment, and their times. It has no state: replicas share one."""

    def __init__(
        self,
        compiled: Compiled,
        remarks: Sequence[str] = (),
        handles: Sequence[tuple[Any, float]] = (),
        *,
        experts_scale: float = 1.0,
    ) -> None:
        """Sort the operators of a deployment.

        Args:
            compiled: the deployment.
            remarks: what `source` adds.
            handles: engines whose times are taken in place of the deployment's own, each with its
                share; the shares add up to 1.
            experts_scale: what the experts' times are multiplied by, for another number format.

        Raises:
            NoDataError: there are no times.
        """
        self.source = "; ".join((compiled.source, *remarks))
        self.system, self.version = compiled.system, compiled.version
        self.arguments, self.model = compiled.arguments, compiled.model
        self.num_layers = int(self.model._num_layers)
        self._handles = handles or ((compiled.handle, 1.0),)
        self._experts_scale = experts_scale
        self.prefill = self._operators(
            self.model.context_ops, "evaluate_context_ops", PREFILL_PROBE
        )
        self.decode = self._operators(
            self.model.generation_ops, "evaluate_generation_ops", DECODE_PROBE
        )
        for operators in (self.prefill, self.decode):
            operators.experts_ms(1)
            operators.messages_ms(1)

    def _operators(self, operators: Any, evaluate: str, probe: Probe) -> OperatorList:
        functions = [(getattr(handle, evaluate), share) for handle, share in self._handles]
        names = [operator._name for operator in operators]
        num_ranks = self.arguments.get("attention_dp_size", 1)
        left_out = _counted_twice(names, num_ranks)
        return OperatorList(
            names,
            self._timed(functions),
            probe,
            num_ranks=num_ranks,
            left_out=left_out,
            experts_scale=self._experts_scale,
        )

    def _timed(self, functions: Sequence[tuple[Callable[..., Any], float]]) -> TimeOperators:
        def time_ms(
            places: list[int], num_rows: int, num_tokens: int, prefix: int = 0, x: int = 0
        ) -> float:
            total_ms = 0.0
            for evaluate, share in functions:
                try:
                    times = evaluate(
                        places, batch_size=num_rows, s=num_tokens, prefix=prefix, x=x or None
                    )
                except (RuntimeError, ValueError) as error:
                    reason = f"{self.source}: no data: {reason_of(error, self.system)}"
                    raise NoDataError(reason, key=("latency",)) from None
                total_ms += share * sum(operator_ms for _, operator_ms, _, _ in times)
            return float(total_ms)

        return time_ms


def _counted_twice(names: Sequence[str], num_ranks: int) -> list[str]:
    """Operators whose work another one of the list has, too (version 0.12)."""
    found = []
    if num_ranks == 1:
        # The list of vLLM's latent attention has all all-reduces of a layer in this operator, and
        # counts them once more before and after the experts.
        found += [name for name in names if name.endswith("_tp_allreduce")]
    if any(name.endswith("_qkv_a_proj_gemm") for name in names):
        # The list of latent attention with DeepEP has the same matrix product under two names.
        found += [name for name in names if name.endswith("_downscale_gemm")]
    return found
