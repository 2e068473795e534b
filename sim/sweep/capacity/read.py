"""Reads the results of `simulate plan`, a search for deployments, as `plan_json` wrote them."""

from pathlib import Path
from typing import Any, NamedTuple, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from sim.core.errors import InputError
from sim.core.packed import read_json_object
from sim.metrics.summary_type import Confidence
from sim.sweep.result_files import RESULTS
from sim.validation import OPEN, Count, MetricNumber, Printable, check

REWRITE_HINT = "simulate plan with the same --out writes it anew"


class _Deployment(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    gpu: Printable
    verdict: Printable
    family: Printable
    replicas: Count | None
    dram_gb: NotRequired[MetricNumber | None]
    store_tb: NotRequired[MetricNumber | None]
    alike_cache_hit_rate_pct: NotRequired[MetricNumber | None]
    alike_mean_ttft_ms: NotRequired[MetricNumber | None]
    cost_per_million_tokens: NotRequired[MetricNumber | None]
    settings: dict[str, Any]
    metrics: dict[str, Any]


class _Load(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    deployment: Printable
    servers: Printable
    num_gpus: Count
    load: MetricNumber
    load_unit: Printable
    on_front: bool
    meets: bool
    saturated: bool | None
    tokens_per_user: MetricNumber | None
    tokens_per_user_half_width: MetricNumber | None
    tokens_per_user_low: MetricNumber | None
    tokens_per_user_high: MetricNumber | None
    tokens_per_gpu: MetricNumber | None
    tokens_per_gpu_half_width: MetricNumber | None
    tokens_per_gpu_low: MetricNumber | None
    tokens_per_gpu_high: MetricNumber | None
    slo_attainment: MetricNumber | None
    num_seeds: Count


class _Memory(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    unlimited_hit_pct: MetricNumber


class _Plan(TypedDict):
    """What is read of results.json."""

    __pydantic_config__ = OPEN  # type: ignore[misc]

    name: Printable
    sought: Printable
    confidence: Confidence
    scenario: dict[str, Any]
    deployments: list[_Deployment]
    loads: list[_Load]
    memory: NotRequired[_Memory]


_PLAN_TYPE = TypeAdapter(_Plan)


class PlanFile(NamedTuple):
    """What results.json has.

    Attributes:
        name: the scenario's name.
        sought: what was looked for, in a sentence.
        confidence: how far to believe the first deployment's means; empty if there is none.
        scenario: the scenario of the plan, as its file would have it.
        deployments: a flat row for each candidate.
        loads: the rows of `sim.sweep.capacity.front.load_rows`.
        memory: what the traffic's KV says of sizes of memory; None: they were not searched for.
    """

    name: str
    sought: str
    confidence: dict[str, Any]
    scenario: dict[str, Any]
    deployments: list[dict[str, Any]]
    loads: list[dict[str, Any]]
    memory: dict[str, Any] | None


def is_plan_folder(folder: Path) -> bool:
    """Whether the folder's results.json is that of a plan. InputError: it cannot be read."""
    return "deployments" in read_json_object(folder / RESULTS)


def read_plan(folder: Path) -> PlanFile:
    """The results in a folder. Raises InputError if they cannot be read."""
    path = folder / RESULTS
    try:
        content = read_json_object(path)
        check(_PLAN_TYPE, content, str(path))
    except InputError as error:
        raise InputError(f"{error} ({REWRITE_HINT})") from None
    rows = [
        {key: value for key, value in one.items() if key not in {"settings", "metrics"}}
        for one in content["deployments"]
    ]
    return PlanFile(
        content["name"],
        content["sought"],
        content["confidence"],
        content["scenario"],
        rows,
        content["loads"],
        content.get("memory"),
    )
