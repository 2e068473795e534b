"""The quantities of a step that a profile's terms may use, and which of them each mode uses.

Both the fit of a profile and its prediction use these definitions.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sim.core.batch import ForwardMode
from sim.latency.features import StepFeatures

Reading = Callable[[StepFeatures, int], float]


class Quantity(NamedTuple):
    """A quantity of a step, such as its decode rows.

    Attributes:
        label: its name in tables and warnings.
        unit: what a coefficient's ns are for, such as one token; empty for a constant.
        read: computes it from a step's features and the number of rows of its decode graph; 0: the
            step runs without a graph (eager).
    """

    label: str
    unit: str
    read: Reading


def _num_cached(step: StepFeatures) -> int:
    return step.num_context_tokens - step.num_decode_context_tokens - step.num_prefill_tokens


def _mean(total: int, rows: int) -> float:
    return total / rows if rows else 0.0


QUANTITIES: Mapping[str, Quantity] = {
    "constant": Quantity("constant", "", lambda _step, _graph: 1),
    "eager": Quantity("without a graph", "", lambda _step, graph: int(graph == 0)),
    "padded_rows": Quantity(
        "padded decode rows", "row", lambda step, graph: graph or step.num_decode_rows
    ),
    "decode_rows": Quantity("decode rows", "row", lambda step, _graph: step.num_decode_rows),
    "decode_context": Quantity(
        "decode context", "token", lambda step, _graph: step.num_decode_context_tokens
    ),
    "mean_context": Quantity(
        "mean decode context",
        "token",
        lambda step, _graph: _mean(step.num_decode_context_tokens, step.num_decode_rows),
    ),
    "tokens": Quantity("prefill tokens", "token", lambda step, _graph: step.num_prefill_tokens),
    "new_tokens": Quantity(
        "prefill tokens and decode rows",
        "token",
        lambda step, _graph: step.num_prefill_tokens + step.num_decode_rows,
    ),
    # The feature counts each pair twice.
    "attention": Quantity(
        "prefill attention", "query-key pair", lambda step, _graph: step.prefill_attention / 2
    ),
    "prefill_rows": Quantity("prefill rows", "row", lambda step, _graph: step.num_prefill_rows),
    "cached_tokens": Quantity(
        "cached tokens read", "token", lambda step, _graph: _num_cached(step)
    ),
    "mean_cached": Quantity(
        "mean cached prefix",
        "token",
        lambda step, _graph: _mean(_num_cached(step), step.num_prefill_rows),
    ),
    "context": Quantity("context", "token", lambda step, _graph: step.num_context_tokens),
}


class ModeTerms(NamedTuple):
    """The quantities that the model of one mode uses, by name.

    Attributes:
        knee: the device term that may occur again, each time for the part of the quantity above
            another knee. Below the knee, reading the weights takes longest; above it, arithmetic.
        axes: pairs of axes that the correction table may have.
        launch: terms of the launch time of steps that run without a graph. None of them changes as
            the context of decode rows grows.
        ranges: quantities whose measured range the profile keeps.
    """

    device: tuple[str, ...]
    knee: str
    axes: tuple[tuple[str, str], ...]
    host: tuple[str, ...]
    launch: tuple[str, ...]
    ranges: tuple[str, ...]


MODE_TERMS: Mapping[ForwardMode, ModeTerms] = {
    ForwardMode.EXTEND: ModeTerms(
        device=("constant", "tokens", "attention", "prefill_rows", "cached_tokens"),
        knee="tokens",
        axes=(("tokens", "mean_cached"),),
        host=("constant", "tokens", "prefill_rows", "context"),
        launch=("constant", "tokens", "prefill_rows"),
        ranges=("tokens", "mean_cached", "prefill_rows"),
    ),
    ForwardMode.DECODE: ModeTerms(
        device=("constant", "eager", "padded_rows", "decode_rows", "decode_context"),
        knee="padded_rows",
        axes=(("padded_rows", "mean_context"),),
        host=("constant", "decode_rows", "decode_context"),
        launch=("constant", "decode_rows"),
        ranges=("decode_rows", "mean_context"),
    ),
    ForwardMode.MIXED: ModeTerms(
        device=(
            "constant",
            "new_tokens",
            "attention",
            "prefill_rows",
            "cached_tokens",
            "decode_rows",
            "decode_context",
        ),
        knee="new_tokens",
        axes=(("tokens", "decode_rows"), ("new_tokens", "context")),
        host=("constant", "tokens", "prefill_rows", "decode_rows", "context"),
        launch=("constant", "tokens", "prefill_rows", "decode_rows"),
        ranges=("tokens", "mean_cached", "decode_rows", "mean_context"),
    ),
}
