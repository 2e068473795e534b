"""A run as columns: small enough for a million requests, ready for numpy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]

NOT_YET_NS = -1


@dataclass(frozen=True, slots=True)
class RequestColumns:
    """One row a request, in order of submission. Arrays have shape [num_requests].

    Times are ns since the run's start, `NOT_YET_NS` where the event never happened. `scheduled_ns`
    is when the first batch the request was in was decided, `cached_tokens` the prefix found then,
    `host_cached_tokens` the part of it that was loaded back from host memory.
    `status` holds `core.request.Status` values, `aged` 1 for requests that had waited so long at
    some time that they went first.
    """

    rid: list[str]
    tenant: list[str]
    status: list[str]
    arrival_ns: Int64
    scheduled_ns: Int64
    first_token_ns: Int64
    finish_ns: Int64
    prompt_tokens: Int64
    cached_tokens: Int64
    host_cached_tokens: Int64
    output_tokens: Int64
    priority: Int64
    retractions: Int64
    preemptions: Int64
    aged: Int64
    replica: Int64


@dataclass(frozen=True, slots=True)
class StepColumns:
    """One row a *run* of steps: one step, or several decode steps of one composition in a row.

    Arrays have shape [num_runs], in order of launch within a replica. `mode` holds ForwardMode
    values. Token counts and sizes describe the run's last step: `free_tokens + evictable_tokens +
    used_tokens` is the pool; `host_used_tokens` are in host memory. `num_loaded_tokens` were
    brought back from there for the run. `device_ns`, `host_ns` and `used_token_steps`, the used
    tokens of each step, are sums over the run.
    """

    replica: Int64
    num_steps: Int64
    t_start_ns: Int64
    t_end_ns: Int64
    mode: Int64
    num_prefill_tokens: Int64
    num_cached_tokens: Int64
    num_loaded_tokens: Int64
    num_prefill_rows: Int64
    num_decode_rows: Int64
    num_context_tokens: Int64
    free_tokens: Int64
    evictable_tokens: Int64
    used_tokens: Int64
    host_used_tokens: Int64
    used_token_steps: Int64
    running: Int64
    queue: Int64
    device_ns: Int64
    host_ns: Int64


class StepRow(NamedTuple):
    """One row of StepColumns."""

    replica: int
    num_steps: int
    t_start_ns: int
    t_end_ns: int
    mode: int
    num_prefill_tokens: int
    num_cached_tokens: int
    num_loaded_tokens: int
    num_prefill_rows: int
    num_decode_rows: int
    num_context_tokens: int
    free_tokens: int
    evictable_tokens: int
    used_tokens: int
    host_used_tokens: int
    used_token_steps: int
    running: int
    queue: int
    device_ns: int
    host_ns: int


@dataclass(frozen=True, slots=True)
class TokenGaps:
    """Inter-token latencies, grouped: `count[i]` consecutive tokens were `gap_ns[i]` apart."""

    gap_ns: Int64
    count: Int64


@dataclass(frozen=True, slots=True)
class RunLog:
    """A whole run. `meta` has plain JSON values: scenario name, hash, seed, versions, pool sizes.

    `meta["replicas"]` is the number of servers, `meta["max_total_tokens"]` the KV tokens of each,
    `meta["host_cache_tokens"]`, where there is a host tier, those of its host memory.
    """

    requests: RequestColumns
    steps: StepColumns
    token_gaps: TokenGaps
    meta: Mapping[str, object] = field(default_factory=dict)

    @property
    def has_host_tier(self) -> bool:
        return "host_cache_tokens" in self.meta
