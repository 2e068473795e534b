"""All rules by the kind of their section, and how to make an autoscaler from a scenario."""

from collections.abc import Mapping
from typing import NamedTuple

from sim.core.units import seconds_to_ns
from sim.des.autoscale.rules import (
    DynamoRule,
    Rule,
    SaturationRule,
    ScheduleRule,
    SloRule,
    TargetRule,
    Thresholds,
    Total,
    arrival_rate,
    mean_total,
)
from sim.des.autoscale.scaler import Autoscale, Pace
from sim.engine.server_config import DECODE, PREFILL
from sim.scenario.autoscale_section import (
    AutoscaleSection,
    DynamoConfig,
    RuleConfig,
    SaturationConfig,
    ScheduleConfig,
    SloConfig,
)
from sim.scenario.schema import SloSection

_SHRINK_WINDOW_S = 300


class LatencyLimits(NamedTuple):
    """Limits of `ttft` and `tpot`, or of one of them, and the percentile that they are for."""

    by_name_ms: Mapping[str, float]
    percentile: float


_TOTALS: Mapping[str, Total] = {
    "queue": mean_total(lambda load: load.waiting),
    "concurrency": mean_total(lambda load: load.waiting + load.running),
    "utilisation": mean_total(lambda load: load.kv_used),
    "rate": arrival_rate,
}


def make_autoscale(
    section: AutoscaleSection, limits: LatencyLimits, *, num_initial: int, gpus: int
) -> Autoscale:
    """The autoscaler of a scenario.

    `limits` are what rule `slo` compares latencies with, `gpus` those of a replica.
    """
    grow, shrink = section.grow, section.shrink
    window_s = shrink.window_s
    if window_s is None:
        window_s = 0 if isinstance(section.rule, DynamoConfig) else _SHRINK_WINDOW_S
    return Autoscale(
        rule=make_rule(section.rule, limits),
        up=Pace(
            seconds_to_ns(grow.window_s), grow.replicas, grow.percent, seconds_to_ns(grow.period_s)
        ),
        down=Pace(
            seconds_to_ns(window_s), shrink.replicas, shrink.percent, seconds_to_ns(shrink.period_s)
        ),
        min_replicas=section.min_replicas,
        max_replicas=section.max_replicas,
        num_initial=num_initial,
        interval_ns=seconds_to_ns(section.interval_s),
        sample_ns=seconds_to_ns(section.sample_s),
        startup_ns=seconds_to_ns(section.startup_s),
        gpus=gpus,
    )


def limits_ms(slo: SloSection, role: str) -> LatencyLimits:
    """The limits that servers of a role can meet: prefill servers have no TPOT, decode no TTFT."""
    limits = {}
    if slo.ttft_ms is not None and role != DECODE:
        limits["ttft"] = slo.ttft_ms
    if slo.tpot_ms is not None and role != PREFILL:
        limits["tpot"] = slo.tpot_ms
    return LatencyLimits(limits, slo.percentile)


def make_rule(rule: RuleConfig, limits: LatencyLimits) -> Rule:
    match rule:
        case SloConfig():
            return SloRule(
                limits.by_name_ms,
                rule.percentile or limits.percentile,
                tolerance=rule.tolerance,
                shrink_below=rule.shrink_below,
            )
        case DynamoConfig():
            return DynamoRule(rule.grow_above, rule.shrink_below)
        case SaturationConfig():
            return SaturationRule(
                Thresholds(
                    rule.kv_cache_threshold,
                    rule.queue_length_threshold,
                    rule.kv_spare_trigger,
                    rule.queue_spare_trigger,
                )
            )
        case ScheduleConfig():
            steps = [(seconds_to_ns(step.at_s), step.replicas) for step in rule.steps]
            return ScheduleRule(
                steps, None if rule.period_s is None else seconds_to_ns(rule.period_s)
            )
        case _:
            return TargetRule(_TOTALS[rule.kind], rule.target, rule.tolerance)
