"""A run over time in a few hundred equal windows."""

from dataclasses import dataclass, fields

import numpy as np

from sim.core.arrays import Float64
from sim.core.units import NS_PER_S
from sim.metrics.fleet import number_in, stops_ns
from sim.metrics.pools import sizes, sizes_of_pool
from sim.metrics.saturation import log_end_ns
from sim.metrics.series import NEVER_GONE, StepSeries, gauge, tokens_per_s
from sim.runlog import RunLog, StepColumns
from sim.runlog.servers import SERVING, FleetLog, LoggedPool

NUM_WINDOWS = 600


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Means over equal windows from the run's start to its end; arrays of one length.

    Attributes:
        t_s: start of each window.
        waiting: requests in the queues of all replicas.
        running: requests being served.
        used_tokens, evictable_tokens, free_tokens: of the replicas' KV pools.
        prefill_tokens_per_s: prompt tokens computed.
        decode_tokens_per_s: tokens decoded.
    """

    t_s: Float64
    waiting: Float64
    running: Float64
    used_tokens: Float64
    evictable_tokens: Float64
    free_tokens: Float64
    prefill_tokens_per_s: Float64
    decode_tokens_per_s: Float64

    @property
    def window_s(self) -> float:
        """The length of a window; 0 if the run is empty."""
        return float(self.t_s[1]) if len(self.t_s) > 1 else 0.0


def timeline(log: RunLog) -> Timeline:
    """The run over time; empty arrays if the run has no steps."""
    return _timeline(log, log.steps, *sizes(log))


def pool_timeline(log: RunLog, pool: LoggedPool) -> Timeline:
    """What the servers of a pool did over time, from the run's start to its end."""
    steps = log.steps.rows(pool.mask(log.steps.replica))
    return _timeline(log, steps, *sizes_of_pool(log, pool))


def _timeline(
    log: RunLog, steps: StepColumns, waiting: StepSeries, running: StepSeries
) -> Timeline:
    end_ns = log_end_ns(log)
    if end_ns < NUM_WINDOWS or not len(steps.t_start_ns):
        return Timeline(*(np.zeros(0) for _ in fields(Timeline)))
    edges_ns = np.linspace(0, end_ns, NUM_WINDOWS + 1)
    fleet = FleetLog.of(log.meta)
    gone_ns = NEVER_GONE if fleet is None else stops_ns(fleet, log.num_ranks)
    used, evictable, free = (
        gauge(steps, column, gone_ns).means(edges_ns)
        for column in (steps.used_tokens, steps.evictable_tokens, steps.free_tokens)
    )
    # A replica logs nothing before its first step. Until then all of its pool is free.
    pool = (used + evictable + free).max()
    if fleet is not None and "pools" not in log.meta:
        tokens = steps.free_tokens + steps.evictable_tokens + steps.used_tokens
        pool_of_replica = int(tokens.max()) * log.num_ranks
        serving = number_in(fleet, SERVING, end_ns).means(edges_ns)
        pool = np.maximum(serving * pool_of_replica, used + evictable)
    return Timeline(
        t_s=edges_ns[:-1] / NS_PER_S,
        waiting=waiting.means(edges_ns),
        running=running.means(edges_ns),
        used_tokens=used,
        evictable_tokens=evictable,
        free_tokens=pool - used - evictable,
        prefill_tokens_per_s=tokens_per_s(steps, steps.num_prefill_tokens, edges_ns),
        decode_tokens_per_s=tokens_per_s(steps, steps.num_decode_rows * steps.num_steps, edges_ns),
    )
