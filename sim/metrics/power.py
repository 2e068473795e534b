"""Power and energy of a run's servers, from the power of their steps."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.core.units import NS_PER_S
from sim.metrics.pools import mean_servers, span_of
from sim.metrics.rates import RunRates, ratio
from sim.runlog import RunLog
from sim.runlog.servers import LoggedPool

_J_PER_KWH = 3.6e6


class Work(NamedTuple):
    """What steps did; arrays of shape [num_rows], and each row stands for one step or more.

    Attributes:
        busy_s: how long the device worked on them.
        prefill_tokens: the prompt tokens of all these steps together.
        context_tokens: what the decode rows of one step attend to; the mean over the steps.
    """

    busy_s: Float64
    num_steps: Int64
    decode_rows: Int64
    prefill_tokens: Int64
    context_tokens: Int64 | Float64


class Amount(NamedTuple):
    """Something that takes energy: in words, and its unit.

    docs/how-to/power.md says which amounts make a formula. A doubling of rows counts, and not each
    row, where rows share much of the work.
    """

    label: str
    unit: str


AMOUNTS: Mapping[str, Amount] = {
    "busy_s": Amount("steps", "s"),
    "decode_s": Amount("decode steps", "s"),
    "decode_doublings_s": Amount("decode steps, each doubling of the rows", "s"),
    "prefill_s": Amount("steps with prompt tokens", "s"),
    "steps": Amount("steps", "step"),
    "step_doublings": Amount("steps, each doubling of rows and prompt tokens", "step"),
    "prefill_tokens": Amount("prompt tokens", "token"),
    "decode_rows": Amount("decode rows", "row"),
    "context_tokens": Amount("decode context", "token"),
}


def amounts_of(work: Work) -> Mapping[str, Float64]:
    tokens, rows, steps = work.prefill_tokens, work.decode_rows, work.num_steps
    decode_s = np.where(tokens > 0, 0.0, work.busy_s)
    found = {
        "busy_s": work.busy_s,
        "decode_s": decode_s,
        "decode_doublings_s": decode_s * np.log2(np.maximum(rows, 1)),
        "prefill_s": np.where(tokens > 0, work.busy_s, 0.0),
        "steps": steps,
        "step_doublings": steps * np.log2(1 + rows + tokens),
        "prefill_tokens": tokens,
        "decode_rows": steps * rows,
        "context_tokens": steps * work.context_tokens,
    }
    return {name: np.asarray(values, dtype=np.float64) for name, values in found.items()}


class ServerPower(NamedTuple):
    """What the GPUs of a server draw, all together.

    Attributes:
        idle_w: without a step.
        limit_w: the most during a step.
        joules: by name of some `AMOUNTS`, the joules that a unit of it takes: of an amount in
            seconds that is watts.
    """

    idle_w: float
    limit_w: float
    joules: Mapping[str, float]

    def energy_j(self, work: Work) -> Float64:
        amounts = amounts_of(work)
        taken = [joules * amounts[name] for name, joules in self.joules.items()]
        limit_j: Float64 = self.limit_w * work.busy_s
        return np.minimum(np.sum(taken, axis=0), limit_j) if taken else 0 * limit_j


def power_metrics(log: RunLog, rates: RunRates) -> dict[str, Any]:
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
    """The energy of a pool's servers: of their steps, and of the time without one.

    Each rank of a server is taken for an equal part of it.
    """
    begin_ns, end_ns = span_ns
    steps = log.steps.rows(pool.mask(log.steps.replica))
    inside_ns = np.minimum(steps.t_end_ns, end_ns) - np.maximum(steps.t_start_ns, begin_ns)
    share = np.maximum(inside_ns, 0) / np.maximum(steps.t_end_ns - steps.t_start_ns, 1)
    busy_s = steps.device_ns / NS_PER_S
    server_s = mean_servers(log, pool, begin_ns, end_ns) * (end_ns - begin_ns) / NS_PER_S
    # Steps of several stages overlap, and a server is busy once.
    busy_s *= min(1.0, server_s / max(float((share * busy_s).sum()), 1e-9))
    of_prompts = steps.num_prefill_tokens + steps.num_cached_tokens
    # A row stands for steps that were passed at once, and has the context of the last one. Each
    # step adds a token for each decode row, so the mean over the steps is less by half of that.
    grown = steps.num_decode_rows * (steps.num_steps - 1) / 2
    work = Work(
        busy_s,
        steps.num_steps,
        steps.num_decode_rows,
        steps.num_prefill_tokens,
        np.maximum(steps.num_context_tokens - of_prompts - grown, 0),
    )
    idle_s = server_s - float((share * busy_s).sum())
    energy_j = float((share * power.energy_j(work)).sum()) + power.idle_w * idle_s
    return energy_j / pool.num_ranks
