"""How far to believe a summary: the part `confidence` of it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.latency.config import AiconfiguratorLatencyConfig
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import Scenario

# What step times of each kind rest on.
BASES: Mapping[str, str] = {
    "aiconfigurator": "operators measured on the GPU",
    "profile": "steps measured on a device",
    "layers": "published times of layers",
    "recorded": "the steps of one recorded run",
    "roofline": "data sheets: a floor, nothing is measured",
    "linear": "a formula of the scenario: nothing is claimed",
}
_OWN = "a class of the user's: nothing is claimed"
# Keys of a summary that can have an interval.
INTERVALS = ("mean_ttft_ms", "mean_tpot_ms", "output_throughput", "slo_attainment")


def confidence_of(loaded: LoadedScenario, summary: Mapping[str, Any]) -> dict[str, Any]:
    """What a summary rests on, and intervals of its means where servers like it were measured.

    Returns:
        `basis`: what the step times rest on; `source`: who measured them, if somebody did.
        `measured`: how many servers were measured. `rows`: how many of them share the simulated
        server's engine, model, GPU and version; if none does, `lacks` is what they need not share
        (a key of `sim.confidence.intervals.LACKS`). `nearest`: the nearest groups of these.
        By the name of each mean, `low` and `high`: `level_pct` percent of such measured servers
        were inside; and `expected`, if `lacks` is `nothing`: half of them were above it.
        `outside`: the simulated means that are `below` or `above` their interval, because nearly
        all such servers were slower, or faster. Without measured servers like this one `rows` is 0,
        and there are no intervals; `no_interval` says why, if step times are fitted or rest on
        measured operators.
    """
    found = basis_of(loaded, summary.get("latency_source")) | {"rows": 0}
    scenario = loaded.scenario
    if scenario.fitted is None and not _has_measured_operators(loaded):
        return found
    if not summary["completed"]:
        return found | {"no_interval": "no request finished"}
    if scenario.fitted is None:
        near = _from_measured(loaded, summary)
    else:
        # Imported only here: most scenarios have no section `fitted`.
        from sim.confidence.intervals import from_fit  # noqa: PLC0415

        near = from_fit(scenario.fitted, loaded, summary)
    for name in _not_measured(scenario.workload, is_saturated=summary["saturated"]):
        near.pop(name, None)
    outside = {
        name: "below" if summary[name] < near[name]["low"] else "above"
        for name in INTERVALS
        if name in near and not near[name]["low"] <= summary[name] <= near[name]["high"]
    }
    return found | near | ({"outside": outside} if outside else {})


def may_have_intervals(loaded: LoadedScenario) -> bool:
    """Whether a run can have intervals, as far as that is known before it."""
    if loaded.scenario.fitted is not None:
        return True
    return _has_measured_operators(loaded) and not _unlike_measured(loaded)


def _from_measured(loaded: LoadedScenario, summary: Mapping[str, Any]) -> dict[str, Any]:
    if reason := _unlike_measured(loaded):
        return {"no_interval": reason}
    from sim.confidence.intervals import disaggregated_in_words, from_measured  # noqa: PLC0415

    near = from_measured(loaded, summary) if _has_known_front_ends(loaded) else {}
    if near:
        return near
    if not loaded.pools:
        return {"no_interval": "no server like this one was measured near this load"}
    return {
        "no_interval": "no servers like these were measured near this load: of disaggregated"
        f" servers only {disaggregated_in_words()}, behind Dynamo's front end"
    }


# The front end of all disaggregated servers that were measured (docs/hardware-disaggregated.md).
# With another one, the simulated TTFT was compared with nothing.
_DYNAMO_FRONT_END_S = 0.06


def _has_known_front_ends(loaded: LoadedScenario) -> bool:
    """Whether prompts come to prefill servers as they came to the measured ones."""
    sections = loaded.scenario.pools or {}
    hosts = [
        pool.scenario.host
        for name, pool in loaded.pools.items()
        if sections[name].role == "prefill"
    ]
    front_ends = {host.front_end_s for host in hosts if host is not None}
    return not loaded.pools or front_ends == {_DYNAMO_FRONT_END_S}


def before_traffic(loaded: LoadedScenario, source: str) -> dict[str, Any]:
    """What is known of servers before a request comes: as `confidence_of`, without intervals."""
    found = basis_of(loaded, source)
    scenario = loaded.scenario
    if scenario.fitted is None and may_have_intervals(loaded):
        from sim.confidence.intervals import nearest_to  # noqa: PLC0415

        found |= nearest_to(loaded)
    return found


def over_seeds(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The `confidence` of runs that differ in their seeds only.

    The ends of an interval are means over the runs; a mean has none if one of the runs has none.
    All else is that of the first run.
    """
    if not runs:
        return {}
    found = dict(runs[0])
    for name in INTERVALS:
        ends = [run[name] for run in runs if name in run]
        found.pop(name, None)
        if len(ends) == len(runs):
            found[name] = {
                end: sum(each[end] for each in ends) / len(ends)
                for end in ("low", "expected", "high")
                if all(end in each for each in ends)
            }
    return found


def basis_of(loaded: LoadedScenario, source: str | None) -> dict[str, Any]:
    """What the step times of a scenario's servers rest on, and who measured them."""
    bases = {name: _basis(pool.scenario) for name, pool in loaded.pools.items()}
    basis = _basis(loaded.scenario) if not bases else next(iter(bases.values()))
    if len(set(bases.values())) > 1:
        basis = "; ".join(f"{name}: {each}" for name, each in bases.items())
    return {"basis": basis, **({"source": source} if source else {})}


def _basis(scenario: Scenario) -> str:
    if (fitted := scenario.fitted) is not None:
        return f"fitted to {fitted.requests:,} requests of measured runs: {fitted.runs}"
    return BASES.get(getattr(scenario.latency, "kind", ""), _OWN)


def _servers(loaded: LoadedScenario) -> list[Scenario]:
    """The scenario of each server pool, or the scenario itself."""
    return [pool.scenario for pool in loaded.pools.values()] or [loaded.scenario]


def _has_measured_operators(loaded: LoadedScenario) -> bool:
    latencies = (server.latency for server in _servers(loaded))
    return all(isinstance(each, AiconfiguratorLatencyConfig) for each in latencies)


def _unlike_measured(loaded: LoadedScenario) -> str:
    """The first reason why no measured server was simulated like this one; empty: there is none."""
    reasons = map(_unlike, _servers(loaded))
    return next(filter(None, reasons), "")


def _unlike(scenario: Scenario) -> str:
    section = scenario.latency
    if not isinstance(section, AiconfiguratorLatencyConfig):
        return ""
    reasons = {
        "none of the servers compared had pipeline stages": section.pp > 1,
        "none of the servers compared had draft tokens": scenario.scheduler.drafts is not None,
        "latency.efficiency changes the measured times": section.efficiency != 1,
        "there is no section host, so the host's time is missing": scenario.host is None,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _not_measured(workload: object, *, is_saturated: bool) -> Iterator[str]:
    """The mean that has no interval, because the measured servers had closed loops.

    Where requests come at a rate, the rate is the throughput of a server that can serve it; of one
    that cannot, TTFT grows for as long as they come.
    """
    limits = (getattr(workload, name, None) for name in ("max_concurrency", "clients", "at_a_time"))
    if not any(limits):
        yield "mean_ttft_ms" if is_saturated else "output_throughput"
