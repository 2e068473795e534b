"""The type of a summary that was read from a file."""

from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,  # pydantic needs it before Python 3.12
)

from pydantic import Field, TypeAdapter, create_model
from typing_extensions import TypedDict

from sim.core.errors import InputError
from sim.metrics.registry import GROUP_METRICS, LATENCIES, POOL_METRICS, RUN_METRICS
from sim.metrics.summary import PERCENTS
from sim.validation import OPEN, Count, MetricNumber, Printable, check


class _Interval(TypedDict):
    low: MetricNumber
    expected: NotRequired[MetricNumber]
    high: MetricNumber


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


_Value = bool | MetricNumber | None
# Empty if there is no sample.
_Quantiles = Annotated[list[MetricNumber], Field(max_length=len(PERCENTS))]


def _metrics(names: Any, **more: Any) -> dict[str, Any]:
    quantiles: dict[str, Any] = {f"{name}_quantiles_ms": (_Quantiles, []) for name in LATENCIES}
    return {**dict.fromkeys(names, (_Value, None)), **quantiles, **more}


_Group: Any = create_model("_Group", __config__=OPEN, **_metrics(GROUP_METRICS))
_Role = Literal["prefill", "decode", "both"]
_Servers = Annotated[int, Field(ge=1, le=1e18)]
_OF_POOLS: dict[str, Any] = dict.fromkeys((*POOL_METRICS, *GROUP_METRICS), (_Value, None))
_OF_POOLS |= {"role": (_Role, ...), "replicas": (_Servers, ...), "ranks": (_Servers, ...)}
_Pool: Any = create_model("_Pool", __config__=OPEN, **_OF_POOLS)
_PoolName = Annotated[str, Field(pattern=r"^[\w-]+$", max_length=100)]
_Summary: Any = create_model(
    "_Summary",
    __config__=OPEN,
    **_metrics(
        RUN_METRICS,
        hot=(_Group, {}),
        cold=(_Group, {}),
        tenants=(dict[str, _Group], {}),
        pools=(dict[_PoolName, _Pool], {}),
        queue_time=(dict[str, _Value], {}),
        goodput_slos_ms=(dict[str, MetricNumber], {}),
        rejected_rids=(list[str], []),
        traffic_notes=(list[str], []),
        window=(dict[str, MetricNumber] | None, None),
        saturated=(bool | None, None),
        confidence=(Confidence, {}),
    ),
)
_ADAPTER = TypeAdapter(_Summary)


def check_summary(summary: object, where: str) -> None:
    """Check that metrics are numbers, also those of groups of requests and of server pools."""
    check(_ADAPTER, summary, where)
    _check_quantiles(summary, where)


def _check_quantiles(summary: Any, where: str) -> None:
    groups = {f"{name}.": summary.get(name, {}) for name in ("hot", "cold")}
    groups |= {f"tenants.{name}.": part for name, part in summary.get("tenants", {}).items()}
    for prefix, group in {"": summary, **groups}.items():
        for key, value in group.items():
            if key.endswith("_quantiles_ms") and value and len(value) != len(PERCENTS):
                reason = f"must have {len(PERCENTS)} numbers, got {len(value)}"
                raise InputError(f"{where}: {prefix}{key}: {reason}")
