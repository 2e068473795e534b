"""Power and energy of a run's servers, from the power of their steps."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from sim.core.arrays import Bools, Float64, Int64
from sim.core.units import NS_PER_S
from sim.metrics.pools import mean_servers, span_of
from sim.metrics.rates import Served, ratio
from sim.runlog import RunLog
from sim.runlog.servers import LoggedPool

_J_PER_KWH = 3.6e6


class ServerPower(NamedTuple):
    """What the GPUs of a server draw, all together, in watts.

    Attributes:
        idle_w: without a step.
        decode_w: during a decode step of one row.
        doubling_w: how much more with each doubling of the rows.
        prefill_w: during a step with prompt tokens.
        limit_w: no step draws more: the most that was seen.
    """

    idle_w: float
    decode_w: float
    doubling_w: float
    prefill_w: float
    limit_w: float

    def busy_w(self, rows: Int64, is_prefill: Bools) -> Float64:
        """During steps with these decode rows; all of shape [num_steps]."""
        decode_w = self.decode_w + self.doubling_w * np.log2(np.maximum(rows, 1))
        watts: Float64 = np.minimum(np.where(is_prefill, self.prefill_w, decode_w), self.limit_w)
        return watts


def power_metrics(log: RunLog, rates: Served) -> dict[str, Any]:
    """`mean_power_w`, `energy_kwh`, `joules_per_output_token` and `joules_per_token`.

    They are about the log's window, or else the time from the first arrival to the last finish.
    Empty if the power of the servers is not known (`meta["power"]`, one `ServerPower` for each
    server pool).
    """
    known, span_ns = log.meta.get("power"), span_of(log)
    if not isinstance(known, list) or span_ns is None:
        return {}
    pools = log.pools or (_only_pool(log),)
    energy_j = sum(
        _energy_j(log, pool, ServerPower(**power), span_ns)
        for pool, power in zip(pools, known, strict=True)
    )
    num_output, num_input = rates.output_tokens.sum().item(), rates.input_tokens.sum().item()
    return {
        "mean_power_w": energy_j * NS_PER_S / (span_ns[1] - span_ns[0]),
        "energy_kwh": energy_j / _J_PER_KWH,
        "joules_per_output_token": ratio(energy_j, num_output),
        "joules_per_token": ratio(energy_j, num_input + num_output),
    }


def _only_pool(log: RunLog) -> LoggedPool:
    """All servers of a log without pools."""
    meta: Mapping[str, Any] = log.meta
    return LoggedPool("", "", 0, meta["replicas"], log.num_ranks, meta)


def _energy_j(log: RunLog, pool: LoggedPool, power: ServerPower, span_ns: tuple[int, int]) -> float:
    """The energy of a pool's servers: what idle ones draw, and what steps add to it.

    Each rank of a server is taken for an equal part of it.
    """
    begin_ns, end_ns = span_ns
    steps = log.steps.rows(pool.mask(log.steps.replica))
    inside_ns = np.minimum(steps.t_end_ns, end_ns) - np.maximum(steps.t_start_ns, begin_ns)
    share = np.maximum(inside_ns, 0) / np.maximum(steps.t_end_ns - steps.t_start_ns, 1)
    busy_s = share * steps.device_ns / NS_PER_S
    server_s = mean_servers(log, pool, begin_ns, end_ns) * (end_ns - begin_ns) / NS_PER_S
    # Steps of several stages overlap, and a server is busy once.
    busy_s *= min(1.0, server_s / max(float(busy_s.sum()), 1e-9))
    added_w = power.busy_w(steps.num_decode_rows, steps.num_prefill_tokens > 0) - power.idle_w
    energy_j = float((added_w * busy_s).sum()) + power.idle_w * server_s
    return energy_j / pool.num_ranks
