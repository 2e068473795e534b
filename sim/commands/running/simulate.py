"""Simulates a built scenario: silently, or as a command does, with progress and perhaps workers."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sim import __version__
from sim.confidence.confidence import confidence_of
from sim.core.errors import InputError
from sim.core.units import seconds_to_ns
from sim.des.autoscale.scaler import Autoscale
from sim.des.clock import Clock
from sim.des.deployment import Deployment, HandoverOptions, ServerPool
from sim.des.routers.router import Router
from sim.des.routers.table import make_router
from sim.des.run import simulate
from sim.des.servers import RunOptions, Servers
from sim.des.transfers.transfers import Transfers
from sim.engine.server_config import BOTH
from sim.families import family_named
from sim.latency.config import ProfileLatencyConfig, parallelism
from sim.latency.kv_memory import KvBytes
from sim.latency.model import Ranged, RangeReport, each_latency, latency_source
from sim.metrics.latencies import Slo
from sim.metrics.series import with_window
from sim.metrics.summary import Summary, summarise
from sim.report.progress import Progress
from sim.runlog import RunLog
from sim.scenario.build import BuiltScenario, located_errors
from sim.scenario.kv_pool import kv_pool
from sim.scenario.schema import Scenario

# The log, and what the latency models say of the ranges in which they were measured.
Simulated = tuple[RunLog, RangeReport]
Simulation = Callable[[BuiltScenario, RunOptions], Simulated]


def servers_of(built: BuiltScenario) -> Servers:
    scenario = built.loaded.scenario
    num_front_ends = scenario.scheduler.num_front_ends(parallelism(scenario.latency).dp)
    return Servers(built.scheduler, built.latencies, scenario.host, num_front_ends)


def autoscale_of(scenario: Scenario, role: str = BOTH) -> Autoscale | None:
    """How the number of replicas changes, of a scenario or of a pool; None: it does not."""
    if scenario.autoscale is None:
        return None
    from sim.des.autoscale.table import limits_ms, make_autoscale

    gpus = parallelism(scenario.latency).num_gpus
    return make_autoscale(
        scenario.autoscale, limits_ms(scenario.slo, role), num_initial=scenario.replicas, gpus=gpus
    )


def simulate_here(built: BuiltScenario, options: RunOptions) -> Simulated:
    with located_errors(built.loaded):
        log = simulate(built.workload, deployment_of(built), options)
    of_pools = [pool.latencies for pool in built.pools.values()] or [built.latencies]
    models = [model for latencies in of_pools for model in each_latency(latencies)]
    return log, RangeReport.merged(m.left_range() for m in models if isinstance(m, Ranged))


def deployment_of(built: BuiltScenario) -> Deployment:
    """The servers of a scenario, and new routers."""
    scenario, base_dir = built.loaded.scenario, built.loaded.base_dir
    if not built.pools:
        router = make_router(scenario.router, base_dir, scenario.seed)
        return Deployment.of_servers(servers_of(built), router, autoscale_of(scenario))
    sections = scenario.pools or {}
    pools = [
        ServerPool(
            name,
            sections[name].role,
            servers_of(pool),
            autoscale_of(pool.loaded.scenario, sections[name].role),
            parallelism(pool.loaded.scenario.latency).num_gpus,
            pool.kv_bytes,
        )
        for name, pool in built.pools.items()
    ]
    routers: dict[str, Router] = {
        sections[name].role: make_router(pool.loaded.scenario.router, base_dir, scenario.seed)
        for name, pool in built.pools.items()
    }
    return Deployment(pools, routers, handover_of(built))


def handover_of(built: BuiltScenario) -> HandoverOptions | None:
    """How KV gets from prefill to decode servers; None: there are none."""
    section = built.loaded.scenario.transfer
    if section is None:
        return None
    family = family_named(built.scheduler.family)
    chosen = section.decode_server_chosen
    late = family.decodes_after_prefill if chosen is None else chosen == "after_prefill"
    if late and not family.decodes_after_prefill:
        reason = f"{family.title} needs both servers from the beginning: use at_arrival"
        raise InputError(reason, key=("transfer", "decode_server_chosen"))

    def transfers(
        env: Clock, num_ranks: Callable[[int], int], sizes: Callable[[int], KvBytes]
    ) -> Transfers:
        return Transfers(
            env,
            section,
            sizes,
            built.loaded.scenario.seed,
            send_queues=family.send_queues,
            num_ranks=num_ranks,
        )

    return HandoverOptions(
        transfers,
        message_ns=seconds_to_ns(section.latency_s),
        after_prefill=family.decodes_after_prefill,
        chooses_late=late,
    )


def source_of(built: BuiltScenario) -> str:
    """Who measured the step times of a scenario's servers; empty: nobody."""
    servers = list(built.pools.values()) or [built]
    found = [latency_source(next(each_latency(each.latencies))) for each in servers]
    return "; ".join(source for source in dict.fromkeys(found) if source is not None)


def power_of(built: BuiltScenario) -> list[dict[str, Any]] | None:
    """The power of each pool's servers, or of the only ones; None: that of some is not known."""
    found = []
    for servers in list(built.pools.values()) or [built]:
        latency, base_dir = servers.loaded.scenario.latency, servers.loaded.base_dir
        profile = None
        if isinstance(latency, ProfileLatencyConfig):
            from sim.latency.profile.format import load_profile

            profile = load_profile(latency.path, base_dir)
        if profile is None or profile.power is None:
            return None
        found.append(profile.power.of_server()._asdict())
    return found


def _has_drafts(built: BuiltScenario) -> bool:
    servers = list(built.pools.values()) or [built]
    return any(getattr(each.scheduler, "speculation", None) is not None for each in servers)


def simulate_built(
    built: BuiltScenario, options: RunOptions, simulation: Simulation = simulate_here
) -> RunLog:
    """Simulate a built scenario.

    The log's `meta` also says where step times come from (`latency_source`), how many steps were
    outside of the ranges in which the latency models were measured (`left_range`), what a trace's
    reader left out or estimated (`traffic_notes`), which benchmark's client sent the requests
    (`client`), if one did, and the `power` of the servers, if it was measured.
    """
    source = source_of(built)
    if source:
        options = replace(options, meta={**options.meta, "latency_source": source})
    if built.workload.notes:
        notes = list(built.workload.notes)
        options = replace(options, meta={**options.meta, "traffic_notes": notes})
    if built.workload.client is not None:
        options = replace(options, meta={**options.meta, "client": dict(built.workload.client)})
    if (power := power_of(built)) is not None:
        options = replace(options, meta={**options.meta, "power": power})
    # A row of the log has the context of its last step alone, and energy depends on that of each.
    if not built.foresees or (power is not None and _has_drafts(built)):
        options = replace(options, fast_forward=False)
    log, ranges = simulation(built, options)
    left = str(ranges)
    return replace(log, meta={**log.meta, "left_range": left}) if left else log


def simulate_measured(
    built: BuiltScenario, options: RunOptions, simulation: Simulation = simulate_here
) -> RunLog:
    """Like `simulate_built`; metrics of the log leave out the scenario's warm-up and cool-down."""
    scenario = built.loaded.scenario
    warmup, cooldown = scenario.warmup, scenario.cooldown
    if warmup is None and cooldown is None:
        return simulate_built(built, options, simulation)
    log = simulate_built(built, replace(options, timed_gaps=True), simulation)
    with located_errors(built.loaded):
        return with_window(
            log,
            None if warmup is None else warmup.edge(),
            None if cooldown is None else cooldown.edge(),
        )


def run_built(
    built: BuiltScenario,
    *,
    fast_forward: bool = True,
    check: bool = False,
    decisions: Path | None = None,
    simulation: Simulation = simulate_here,
) -> RunLog:
    """Simulate a built scenario, with progress on stderr; see `RunOptions` for the arguments."""
    begin_s = time.perf_counter()
    with Progress(built.workload.num_requests) as progress:
        options = RunOptions(
            fast_forward=fast_forward,
            check=check,
            decisions=decisions,
            watcher=progress.update,
            meta=run_meta(built, "simulation"),
        )
        try:
            log = simulate_measured(built, options, simulation)
        except OSError as error:
            # The decision log is the only file that a simulation writes.
            raise InputError(f"{decisions}: cannot be written: {error.strerror}") from error
    return replace(log, meta={**log.meta, "wall_seconds": time.perf_counter() - begin_s})


def run_meta(built: BuiltScenario, source: str) -> dict[str, object]:
    """What a log says about its run; `source`: what made it."""
    return {
        "name": built.loaded.scenario.name,
        "seed": built.loaded.scenario.seed,
        "scenario_hash": built.loaded.content_hash,
        "servetwin_version": __version__,
        "source": source,
    }


def summary_with_confidence(log: RunLog, built: BuiltScenario) -> Summary:
    """The summary of a simulated run, its KV pools, and how far to believe it (`sim.confidence`).

    `kv_pool` has the pool of each server, or of each rank; with server pools, each of `pools` has
    one. `sim.scenario.kv_pool.KvPool` names its values.
    """
    loaded = built.loaded
    summary = summary_of(log, loaded.scenario)
    for name, pool in built.pools.items():
        summary["pools"][name]["kv_pool"] = kv_pool(pool.served, pool.scheduler)._asdict()
    if not built.pools:
        summary["kv_pool"] = kv_pool(built.served, built.scheduler)._asdict()
    confidence = confidence_of(loaded, summary)
    if "mean_ttft_ms" in confidence:
        from sim.confidence.intervals import attainment_interval

        slo = slo_of(loaded.scenario)
        if interval := attainment_interval(log, slo, summary, confidence):
            confidence["slo_attainment"] = interval
    return {**summary, "confidence": confidence}


def summary_of(log: RunLog, scenario: Scenario) -> Summary:
    """The summary of a run of a scenario, with the scenario's service level objectives."""
    return summarise(log, slo_of(scenario))


def slo_of(scenario: Scenario) -> Slo:
    slo = scenario.slo
    return Slo(slo.ttft_ms, slo.tpot_ms, slo.e2e_latency_ms, slo.percentile)
