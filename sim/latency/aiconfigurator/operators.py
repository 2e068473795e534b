"""The operators of a step, sorted by what their time depends on, and timed by the package's engine.

The package itself is not imported here.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from sim.core.errors import InputError
from sim.latency.aiconfigurator.deployment import reason_of


class Probe(NamedTuple):
    """Two sizes of a step with equally many new tokens, at which operators are compared.

    Attributes:
        sizes: rows, and tokens of each row.
        x: new tokens of the step.
    """

    sizes: tuple[tuple[int, int], tuple[int, int]]
    x: int


# Engines of the package that time operators, each with its share.
Handles = Sequence[tuple[Any, float]]
# How the names of latent attention's operators end, and of DeepEP's.
_LATENT = "_mla_block"
_MESSAGES = ("_moe_dispatch", "_moe_combine")
PREFILL_PROBE = Probe(((2, 3_000), (6, 1_000)), 6_000)
DECODE_PROBE = Probe(((16, 1_000), (16, 9_000)), 16)


class TimeOperators(Protocol):
    """The time of the operators at some `places` of their list at one size, in ms.

    Each of the step's rows has `num_tokens`, the new ones of a prefill row or the whole context of
    a decode row, and a cached `prefix`. `x` are the new tokens of the step over all rows; without
    it: what follows from the other sizes.
    """

    def __call__(
        self, places: list[int], num_rows: int, num_tokens: int, *, prefix: int = 0, x: int = 0
    ) -> float: ...


class OperatorList:
    """One phase's operators: those of prefill rows, or those of decode rows.

    An operator is asked at the two sizes of a probe. If both times are equal, it depends on the
    number of new tokens alone, as a matrix product does. If not, it depends on the rows, as
    attention does. So no list of names must be kept up to date. Only `head`, `experts` and
    `messages` are known by their names. Operators are given by their places in the phase's list.

    Attributes:
        tokens: operators that run on every new token.
        rows: operators whose time depends on how tokens are spread over rows.
        head: the output head, which runs on one token of each row; empty in the lists of some
            models.
        experts: with several ranks, the operators that run on every new token of all of them: those
            with `moe` in their names. The package asks for the tokens of one rank, and takes all
            ranks to have as many.
        messages: with several ranks and DeepEP, the operators that send every new token of a rank
            to its experts, and back. The rank with the most tokens takes the longest.
        num_ranks: ranks of attention data parallelism.
    """

    def __init__(
        self,
        names: Sequence[str],
        time_ms: TimeOperators,
        probe: Probe,
        *,
        num_ranks: int = 1,
        left_out: Sequence[str] = (),
        experts_scale: float = 1.0,
    ) -> None:
        """Sort the operators called `names`, but for those in `left_out`.

        With several ranks, the times of the experts are multiplied by `experts_scale`.
        """
        self._time_ms = time_ms
        self._experts_scale = experts_scale
        self.num_ranks = num_ranks
        self.experts: list[int] = []
        self.messages: list[int] = []
        self._one_new_per_row = probe is DECODE_PROBE
        self.tokens: list[int] = []
        self.rows: list[int] = []
        self.head: list[int] = []
        for place, name in enumerate(names):
            if name in left_out:
                continue
            if "logits" in name:
                self.head.append(place)
            elif num_ranks > 1 and name.endswith(_MESSAGES):
                self.messages.append(place)
            elif num_ranks > 1 and "moe" in name:
                self.experts.append(place)
            elif len({time_ms([place], *size, x=probe.x) for size in probe.sizes}) == 1:
                self.tokens.append(place)
            else:
                self.rows.append(place)

    def tokens_ms(self, num_tokens: int) -> float:
        """Time of the operators that run on every new token."""
        return self._ms_of(self.tokens, num_tokens)

    def experts_ms(self, num_group_tokens: int) -> float:
        """Time of the operators that run on every new token of all ranks."""
        share = -(-num_group_tokens // self.num_ranks)
        return self._experts_scale * self._ms_of(self.experts, share)

    def messages_ms(self, num_rank_tokens: int) -> float:
        """Time of the operators that send every new token of the rank with the most of them."""
        return self._ms_of(self.messages, num_rank_tokens)

    def _ms_of(self, places: list[int], num_tokens: int) -> float:
        rows, tokens = (num_tokens, 1) if self._one_new_per_row else (1, num_tokens)
        return self._time_ms(places, rows, tokens, x=num_tokens) if places else 0.0

    def head_ms(self, num_rows: int) -> float:
        return self._time_ms(self.head, 1, num_rows, x=num_rows) if self.head else 0.0

    def rows_ms(self, num_rows: int, num_tokens: int, num_cached: int = 0) -> float:
        """Time of the operators in `rows`, such as attention, for equal rows.

        `num_tokens` are the new tokens of each prefill row, or the context of each decode row.
        """
        return self._time_ms(self.rows, num_rows, num_tokens, prefix=num_cached)


class NoDataError(InputError):
    """The package has no times of an operator."""


class Compiled(NamedTuple):
    """What the package makes of a deployment.

    Attributes:
        source: package, licence, system, backend and version.
        system: the package's name of the GPU.
        version: that of the backend, whose measured times are taken.
        arguments: what the package was given: parallelism and number formats.
        model: the package's model, with its lists of operators.
        handle: the package's compiled engine, which times operators.
    """

    source: str
    system: str
    version: str
    arguments: Mapping[str, Any]
    model: Any
    handle: Any


class PackageEngine:
    """The operators of one deployment, and their times. It has no state: replicas share one.

    Attributes:
        source: where the times come from: package, version, licence, database, and remarks.
        prefill: the operators of a step with prefill rows.
        decode: the operators of a step of decode rows alone.
    """

    def __init__(
        self,
        compiled: Compiled,
        remarks: Sequence[str] = (),
        handles: Sequence[tuple[Any, float]] = (),
        *,
        latent_handle: Any = None,
        experts_scale: float = 1.0,
    ) -> None:
        """Sort the operators of a deployment; NoDataError: there are no times.

        `handles` are engines whose times are taken in place of the deployment's own, each with its
        share; the shares add up to 1. Latent attention is timed by `latent_handle`, if there is
        one. The experts' times are multiplied by `experts_scale`, for another number format.
        """
        self.source = "; ".join((compiled.source, *remarks))
        self._measured = compiled.source
        self.system, self.version = compiled.system, compiled.version
        self.arguments, self.model = compiled.arguments, compiled.model
        self.num_layers = int(self.model._num_layers)
        self._handles = handles or ((compiled.handle, 1.0),)
        self._latent_handles = ((latent_handle, 1.0),) if latent_handle else self._handles
        self._experts_scale = experts_scale
        self.prefill = self._operators(
            self.model.context_ops, "evaluate_context_ops", PREFILL_PROBE
        )
        self.decode = self._operators(
            self.model.generation_ops, "evaluate_generation_ops", DECODE_PROBE
        )
        # If experts or messages have no times, a run must not begin.
        for operators in (self.prefill, self.decode):
            operators.experts_ms(1)
            operators.messages_ms(1)

    def _operators(self, operators: Any, evaluate: str, probe: Probe) -> OperatorList:
        names = [operator._name for operator in operators]
        handles = [
            self._latent_handles if name.endswith(_LATENT) else self._handles for name in names
        ]
        num_ranks = self.arguments.get("attention_dp_size", 1)
        return OperatorList(
            names,
            self._timed(handles, evaluate),
            probe,
            num_ranks=num_ranks,
            left_out=_counted_twice(names, num_ranks),
            experts_scale=self._experts_scale,
        )

    def _timed(self, handles: Sequence[Handles], evaluate: str) -> TimeOperators:
        """What times operators at some places, of which each has its engines in `handles`."""

        def time_ms(
            places: list[int], num_rows: int, num_tokens: int, prefix: int = 0, x: int = 0
        ) -> float:
            total_ms = 0.0
            for engines, theirs in groupby(places, key=handles.__getitem__):
                of_one_kind = list(theirs)
                for handle, share in engines:
                    try:
                        times = getattr(handle, evaluate)(
                            of_one_kind,
                            batch_size=num_rows,
                            s=num_tokens,
                            prefix=prefix,
                            x=x or None,
                        )
                    except (RuntimeError, ValueError) as error:
                        reason = f"{self._measured}: no data: {reason_of(error, self.system)}"
                        raise NoDataError(reason, key=("latency",)) from None
                    total_ms += share * sum(operator_ms for _, operator_ms, _, _ in times)
            return float(total_ms)

        return time_ms


def has_latent_attention(compiled: Compiled) -> bool:
    """Whether its layers have latent attention, which the package times as one operator."""
    return any(operator._name.endswith(_LATENT) for operator in compiled.model.context_ops)


def _counted_twice(names: Sequence[str], num_ranks: int) -> list[str]:
    """Operators whose work another one of the list has, too (version 0.12 of the package)."""
    found = []
    if num_ranks == 1:
        # vLLM's list of latent attention has all all-reduces of a layer in this operator, and once
        # more in the operators before and after the experts.
        found += [name for name in names if name.endswith("_tp_allreduce")]
    if any(name.endswith("_qkv_a_proj_gemm") for name in names):
        # The list of latent attention with DeepEP has the same matrix product under two names.
        found += [name for name in names if name.endswith("_downscale_gemm")]
    return found
