"""What a scenario's `autoscale:` section may say. docs/how-to/autoscale.md explains the rules."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.validation import ByKind, KeysError, StrictModel

_MOST_REPLICAS = 4096
_Seconds = Annotated[float, Field(ge=0, le=1e9)]
_Interval = Annotated[float, Field(ge=0.001, le=1e9)]
_Share = Annotated[float, Field(gt=0, le=1000)]
_Replicas = Annotated[int, Field(ge=1, le=_MOST_REPLICAS)]


class _TargetConfig(StrictModel):
    """A rule that keeps a metric of each replica near a target."""

    tolerance: Annotated[float, Field(ge=0, le=10)] = 0.1
    """The number of replicas stays while the metric is off its target by no more than this share.
    Unit: share."""


class QueueConfig(_TargetConfig):
    """As many replicas as have `target` waiting requests each."""

    kind: Literal["queue"]
    target: Annotated[float, Field(gt=0, le=1e9)]
    """Waiting requests of a replica. Unit: requests."""


class ConcurrencyConfig(_TargetConfig):
    """As many replicas as have `target` waiting or running requests each."""

    kind: Literal["concurrency"]
    target: Annotated[float, Field(gt=0, le=1e9)]
    """Waiting and running requests of a replica. Unit: requests."""


class UtilisationConfig(_TargetConfig):
    """As many replicas as use `target` of their KV pools each."""

    kind: Literal["utilisation"]
    target: Annotated[float, Field(gt=0, le=1)]
    """The share of a replica's KV pool that running requests hold. Unit: share."""


class RateConfig(_TargetConfig):
    """As many replicas as get `target` requests per second each."""

    kind: Literal["rate"]
    target: Annotated[float, Field(gt=0, le=1e9)]
    """Requests that arrive for a replica. Unit: requests/s."""


class SloConfig(StrictModel):
    """More replicas when TTFT or TPOT exceed the limits of `slo`, one less when they are far below.

    The scenario's `slo` must have `ttft_ms` or `tpot_ms`.
    """

    kind: Literal["slo"]
    percentile: Literal[50, 90, 95, 99] | None = None
    """Which percentile of the interval's latencies is compared with the limits. Without it: that of
    `slo`."""
    tolerance: Annotated[float, Field(ge=0, le=10)] = 0.1
    """No more replicas while a limit is exceeded by no more than this share. Unit: share."""
    shrink_below: Annotated[float, Field(gt=0, le=1)] = 0.8
    """One replica less if the latencies would then still be at most this share of the limits. For
    this they are multiplied by n / (n - 1), because n - 1 of n replicas get all load. Unit: share.
    """


class DynamoConfig(StrictModel):
    """One more when a replica's KV is overbooked, one less when all have room: Dynamo's planner."""

    kind: Literal["dynamo"]
    grow_above: _Share = 1.0
    """One more replica if the waiting and running requests of any replica need more than this share
    of its KV pool. Unit: share."""
    shrink_below: _Share = 0.6
    """One replica less if those of every replica need less than this share. Unit: share."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.shrink_below > self.grow_above:
            raise KeysError(
                f"shrink_below {self.shrink_below:g} is more than grow_above {self.grow_above:g}",
                "shrink_below",
                "grow_above",
            )
        return self


class SaturationConfig(StrictModel):
    """One more when replicas have little room left, one less when the others have enough: llm-d."""

    kind: Literal["saturation"]
    kv_cache_threshold: Annotated[float, Field(gt=0, le=1)] = 0.8
    """A replica is saturated when running requests hold this share of its KV pool. Unit: share."""
    queue_length_threshold: Annotated[float, Field(gt=0, le=1e9)] = 5
    """A replica is saturated when this many requests wait. Unit: requests."""
    kv_spare_trigger: Annotated[float, Field(ge=0, le=1)] = 0.1
    """One more replica if those that are not saturated are nearer than this to
    `kv_cache_threshold` on average. Unit: share."""
    queue_spare_trigger: Annotated[float, Field(ge=0, le=1e9)] = 3
    """One more replica if those that are not saturated are nearer than this to
    `queue_length_threshold` on average. Unit: requests."""


class TimetableStep(StrictModel):
    """From a time on, this many replicas."""

    at_s: _Seconds
    """When it begins. Unit: s."""
    replicas: _Replicas
    """Replicas that are up or starting. Unit: servers."""


class ScheduleConfig(StrictModel):
    """As many replicas as a timetable says."""

    kind: Literal["schedule"]
    steps: Annotated[tuple[TimetableStep, ...], Field(strict=False, min_length=1)]
    """The timetable, in order of time. The first step begins at 0."""
    period_s: _Interval | None = None
    """The timetable begins again after this time. Without it: the last step has no end. Unit: s."""

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        times = [step.at_s for step in self.steps]
        if times[0] != 0 or sorted(set(times)) != times:
            raise KeysError("at_s must begin at 0 and rise from step to step", "steps")
        if self.period_s is not None and self.period_s <= times[-1]:
            raise KeysError(
                f"period_s {self.period_s:g} must be after the last step", "period_s", "steps"
            )
        return self


RuleConfig = Annotated[
    QueueConfig
    | ConcurrencyConfig
    | UtilisationConfig
    | RateConfig
    | SloConfig
    | DynamoConfig
    | SaturationConfig
    | ScheduleConfig,
    ByKind(),
]


class _PaceSection(StrictModel):
    percent: Annotated[float, Field(gt=0, le=1e6)] | None = 100
    """Most change in a period, of the replicas at its beginning. `null`: no such limit. Unit: %."""
    period_s: _Interval = 15
    """Length of a period. Unit: s."""


class GrowthSection(_PaceSection):
    """How fast the fleet may grow. Defaults are those of Kubernetes."""

    window_s: _Seconds = 0
    """The fleet grows to the lowest number that the rule recommended in this time. Unit: s."""
    replicas: _Replicas | None = 4
    """Most replicas that are added in a period, if this is more than `percent` allows. `null`: only
    `percent` counts. Unit: servers."""


class ShrinkageSection(_PaceSection):
    """How fast the fleet may shrink. Defaults are those of Kubernetes."""

    window_s: _Seconds | None = None
    """The fleet shrinks to the highest number that the rule recommended in this time. Without it:
    300; with rule `dynamo`, which knows no such time, 0. Unit: s."""
    replicas: _Replicas | None = None
    """Most replicas that are stopped in a period, if this is more than `percent` allows. `null`:
    only `percent` counts. Unit: servers."""


class AutoscaleSection(StrictModel):
    """A number of replicas that follows the load. The scenario's `replicas` are up at time 0."""

    rule: RuleConfig
    """What the number of replicas depends on."""
    min_replicas: _Replicas = 1
    """The smallest fleet. Unit: servers."""
    max_replicas: _Replicas
    """The largest fleet: there are GPUs for this many replicas. Unit: servers."""
    interval_s: _Interval = 15
    """Time from one decision to the next. Unit: s."""
    sample_s: _Interval = 5
    """Time from one sample of the replicas' metrics to the next. At most `interval_s`. Unit: s."""
    startup_s: _Seconds = 120
    """How long a replica starts before it takes requests. It holds its GPUs meanwhile. Unit: s."""
    grow: GrowthSection = GrowthSection()
    """How fast the fleet grows when the rule recommends more replicas."""
    shrink: ShrinkageSection = ShrinkageSection()
    """How fast the fleet shrinks when the rule recommends fewer replicas."""

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise KeysError(
                f"min_replicas {self.min_replicas} is more than max_replicas {self.max_replicas}",
                "min_replicas",
                "max_replicas",
            )
        if self.sample_s > self.interval_s:
            raise KeysError(
                f"sample_s {self.sample_s:g} is more than interval_s {self.interval_s:g}",
                "sample_s",
                "interval_s",
            )
        return self
