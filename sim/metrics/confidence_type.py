"""The type of the part `confidence` of a summary that was read from a file."""

from typing import (
    Annotated,
    NotRequired,  # pydantic needs it before Python 3.12
)

from pydantic import Field
from typing_extensions import TypedDict

from sim.validation import OPEN, Count, Printable

_Bounds = Annotated[float, Field(ge=-1e18, le=1e18)]


class _Interval(TypedDict):
    low: _Bounds
    expected: NotRequired[_Bounds]
    high: _Bounds


class _Nearest(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    servers: Count
    engine: Printable
    version: Printable
    model: Printable
    gpu: Printable
    weight_bits: Count
    num_gpus: Count
    prompt_tokens: Count
    output_tokens: Count
    concurrency: Count
    differs: list[Printable]


class Confidence(TypedDict):
    """What is shown of it; `sim.confidence.confidence.confidence_of` says what the parts are."""

    __pydantic_config__ = OPEN  # type: ignore[misc]

    basis: NotRequired[Printable]
    source: NotRequired[Printable]
    no_interval: NotRequired[Printable]
    measured: NotRequired[Count]
    level_pct: NotRequired[Annotated[float, Field(gt=0, lt=100)]]
    outside: NotRequired[dict[Printable, Printable]]
    nearest: NotRequired[Annotated[list[_Nearest], Field(min_length=1)]]
    mean_ttft_ms: NotRequired[_Interval]
    mean_tpot_ms: NotRequired[_Interval]
    output_throughput: NotRequired[_Interval]
    slo_attainment: NotRequired[_Interval]
