"""Runs a small workload and returns its run log and decision log."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sim.des.autoscale.scaler import Autoscale
from sim.des.deployment import Deployment
from sim.des.routers.router import Router
from sim.des.run import PoolFactory, RunOptions, simulate
from sim.engine.page_pool import PageCounts
from sim.engine.server_config import ServerConfig
from sim.latency.host import HostSection
from sim.latency.kinds.linear import LinearLatency
from sim.latency.model import ReplicaLatency
from sim.metrics.latencies import Slo
from sim.metrics.summary import Summary, summarise
from sim.runlog import RunLog
from sim.workload.workload import Workload


@dataclass(frozen=True)
class ServedRun:
    """A finished run.

    Attributes:
        log: the run log.
        text: the decision log, as written.
    """

    log: RunLog
    text: str

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The decision log's steps."""
        lines = (json.loads(line) for line in self.text.splitlines())
        return [line for line in lines if line["kind"] == "step"]

    def request(self, rid: str) -> dict[str, Any]:
        """One request's row of the run log."""
        row = self.log.requests.rid.index(rid)
        return {
            name: getattr(self.log.requests, name)[row]
            for name in self.log.requests.__dataclass_fields__
        }

    @property
    def summary(self) -> Summary:
        """Every figure of the run."""
        return summarise(self.log, Slo(ttft_ms=50, tpot_ms=8))

    @property
    def num_ended(self) -> int:
        """Requests that have come to an end: finished, rejected or aborted."""
        return sum(
            status in {"finished", "rejected", "aborted"} for status in self.log.requests.status
        )

    @property
    def cache_hit_rate_pct(self) -> float:
        """Cached prompt tokens at first admission over prompt tokens."""
        requests = self.log.requests
        return float(100 * requests.cached_tokens.sum() / requests.prompt_tokens.sum())


# The section of a scenario with the default step times of `linear_latency`.
LINEAR_LATENCY = """\
latency:
  kind: linear
  step_s: 0.005
  per_prefill_token_s: 4e-5
  per_decode_request_s: 5e-5
  per_context_token_s: 2e-8
"""


def linear_latency(**seconds: float) -> LinearLatency:
    """A linear model; coefficients that are not given have default values for tests."""
    defaults = {
        "step_s": 0.005,
        "per_prefill_token_s": 4e-5,
        "per_decode_request_s": 5e-5,
        "per_context_token_s": 2e-8,
    }
    return LinearLatency(**(defaults | seconds))


def serve_deployment(
    workload: Workload, deployment: Deployment, options: RunOptions | None = None
) -> ServedRun:
    """Simulate with a decision log; without options all invariants are checked."""
    with TemporaryDirectory() as folder:
        decisions = Path(folder) / "decisions.jsonl"
        options = replace(options or RunOptions(check=True), decisions=decisions)
        log = simulate(workload, deployment, options)
        return ServedRun(log, decisions.read_text(encoding="utf-8"))


def serve(
    workload: Workload,
    config: ServerConfig,
    latencies: Sequence[ReplicaLatency] | None = None,
    *,
    fast_forward: bool = True,
    check: bool = True,
    pool: PoolFactory = PageCounts,
    router: Router | None = None,
    host: HostSection | None = None,
    num_front_ends: int = 1,
    autoscale: Autoscale | None = None,
) -> ServedRun:
    """The same for servers that are all alike; see `Deployment.of_one_kind`."""
    deployment = Deployment.of_one_kind(
        config,
        latencies or [linear_latency()],
        router=router,
        host=host,
        num_front_ends=num_front_ends,
        autoscale=autoscale,
    )
    options = RunOptions(fast_forward=fast_forward, check=check, pool=pool)
    return serve_deployment(workload, deployment, options)
