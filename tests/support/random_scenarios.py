"""Hypothesis strategies for scenarios of every family, policy and mode, with small pools."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from hypothesis import strategies as st

from sim.engine.server_config import ServerConfig
from sim.latency.host import HostSection
from sim.latency.hosted import HostedLatency, HostedServer
from sim.latency.kinds.linear import LinearLatency
from sim.latency.model import LatencyModel, ReplicaLatency
from sim.latency.wrappers import LoadingLatency, LoadTimes, StagedLatency
from sim.sglang.cache.settings import HostCacheSettings
from sim.sglang.cache.tree.eviction import EVICTION_POLICIES, EvictionSettings
from sim.sglang.config import DelayerSettings, PackSettings, SchedulerConfig, StaticSettings
from sim.sglang.policies.policy import POLICIES, PRIORITY_POLICIES
from sim.sglang.scheduler.waiting.fairness import (
    AgingTokens,
    FairnessSettings,
    FairnessT,
    ForceFifo,
    KLpm,
)
from sim.sglang.section.scheduler import SglangSection
from sim.sglang.settings import SchedulerSettings
from sim.sglang.version_rules import NEWEST, VERSIONS
from sim.vllm.config import VllmConfig
from sim.workload.workload import Phase, ScriptedRequest, Turn, Workload, listed
from tests.support.launched_latency import LaunchedLatency
from tests.support.random_settings import other_settings
from tests.support.random_vllm_configs import vllm_configs
from tests.support.workloads import scripted

# Every cost that a host can add.
_HOST = HostSection(
    front_end_s=0.003,
    request_s=0.001,
    prompt_token_s=1e-5,
    step_s=0.0004,
    row_s=1e-5,
    step_gap_s=0.0002,
    row_gap_s=3e-5,
    layer_gap_s=1e-5,
    prefill_token_gap_s=3e-6,
    layer_launch_s=0.003,
)
# Times that no step ends at.
_PATIENCE_NS = (None, None, None, None, None, None, 371, 5_000_371, 37_000_371)
_PAGE_SIZES = (1, 1, 2, 4, 16, 64)


@dataclass(frozen=True)
class RandomScenario:
    """Traffic, settings and speed of a small deployment."""

    workload: Workload
    config: ServerConfig
    replicas: int
    step_s: float
    host_s: float
    launch_ns: int = 0
    host: HostSection | None = None
    front_ends: int = 1
    ranks: int = 1

    def latencies(self) -> list[ReplicaLatency]:
        if self.ranks == 1:
            return [self._latency() for _ in range(self.replicas)]
        return [tuple(self._latency() for _ in range(self.ranks)) for _ in range(self.replicas)]

    def _latency(self) -> LatencyModel:
        model = LinearLatency(
            step_s=self.step_s,
            per_prefill_token_s=2e-5,
            per_decode_request_s=1e-4,
            per_context_token_s=1e-8,
            host_s=self.host_s,
        )
        whole: LatencyModel = model
        if self.launch_ns:
            whole = LaunchedLatency(model, self.launch_ns, graph_rows=2)
        whole = LoadingLatency(whole, LoadTimes(ns_per_token=700.0, num_parts=4))
        if self.host is not None:
            whole = HostedLatency(whole, self.host, HostedServer(4))
        num_stages = self.config.micro_batches
        return StagedLatency(whole, model, range(1, num_stages + 1)) if num_stages > 1 else whole


def with_stages(config: ServerConfig, num_stages: int) -> ServerConfig:
    """The same server with a pipeline."""
    if isinstance(config, SchedulerConfig):
        return replace(
            config, micro_batches=num_stages, disable_overlap_schedule=True, static_batching=None
        )
    if not isinstance(config, VllmConfig):
        raise TypeError(f"{config.family} has no pipelines")
    is_async = config.async_scheduling and config.rules.async_micro_batches
    return replace(config, micro_batches=num_stages, async_scheduling=is_async)


@st.composite
def scheduler_configs(draw: st.DrawFn) -> SchedulerConfig:
    """Settings that a scenario file could have, with room for at least a few pages."""
    page_size = draw(st.sampled_from(_PAGE_SIZES))
    by_priority = draw(st.booleans()) and draw(st.booleans())
    no_cache = draw(st.integers(0, 4)) == 0
    chunk_pages = draw(st.sampled_from((0, 0, 1, 2, 8, 64)))
    turns = draw(st.sampled_from((None, None, None, 1, 3)))
    tuned: dict[str, Any] = {
        "version": draw(st.sampled_from((NEWEST, NEWEST, *VERSIONS))),
        "schedule_policy": draw(
            st.sampled_from(sorted(PRIORITY_POLICIES if by_priority else POLICIES))
        ),
        "page_size": page_size,
        "max_total_tokens": max(draw(st.integers(60, 600)), 4 * page_size),
        "context_length": draw(st.sampled_from((10_000, 200))),
        "chunked_prefill_size": max(chunk_pages * page_size, 16) // page_size * page_size
        if chunk_pages
        else -1,
        "max_prefill_tokens": draw(st.sampled_from((32, 256, 16_384))),
        "max_running_requests": draw(st.sampled_from((1, 2, 5, 64))),
        "prefill_max_requests": draw(st.sampled_from((None, None, 2))),
        "schedule_conservativeness": draw(st.sampled_from((0.05, 0.5, 1.0))),
        "clip_max_new_tokens": draw(st.sampled_from((4, 32, 4096))),
        "enable_mixed_chunk": draw(st.booleans()) and turns is None,
        "disable_radix_cache": no_cache,
        "disable_overlap_schedule": draw(st.booleans()) or turns is not None,
        "enable_priority_scheduling": by_priority,
        "schedule_low_priority_values_first": draw(st.booleans()),
        "priority_scheduling_preemption_threshold": draw(st.integers(0, 3)),
        "disable_priority_preemption": draw(st.booleans()),
        "retraction_policy": draw(st.sampled_from(("length", "priority"))),
        "radix_eviction_policy": draw(st.sampled_from(sorted(EVICTION_POLICIES))),
        "radix_eviction_policy_config": EvictionSettings(
            draw(st.integers(0, 3)), draw(st.sampled_from((1, 30, 200))), draw(st.integers(0, 40))
        ),
        "fairness": draw(fairness_settings()),
        "admission": draw(admission_settings()),
        "static_batching": draw(batching_settings()),
        "decode_max_requests": turns,
        "decode_first": draw(st.integers(0, 3)) == 0,
        "prefill_decode_interval": draw(st.sampled_from((0, 0, 0, 1, 4))),
        "prefill_decode_interval_min_bs": draw(st.integers(0, 2)),
        "min_free_slots_delay": draw(st.sampled_from((0, 0, 0, 2, 9))),
        "prefill_delayer": draw(delayer_settings()),
        "scheduler_recv_interval": draw(st.sampled_from((1, 1, 2, 7, 30))),
        "host_cache": None if no_cache else draw(host_cache_settings(page_size)),
        # Servers that abort requests are drawn where clients are impatient.
        "max_queued_requests": None,
    }
    return SchedulerConfig(**draw(other_settings(SglangSection, SchedulerSettings, tuned)), **tuned)


def host_cache_settings(page_size: int) -> st.SearchStrategy[HostCacheSettings | None]:
    """No host cache, or one of any size: some hold almost nothing, some hold everything."""
    settings = st.builds(
        HostCacheSettings,
        st.sampled_from((1, 40, 200, 100_000)).map(
            lambda tokens: max(tokens // page_size, 1) * page_size
        ),
        st.sampled_from((None, 1, 2)),
        st.sampled_from((0, 10, 60)),
        st.sampled_from((0.0, 1000.0, 300_000.0)),
    )
    return st.one_of(st.none(), settings)


def delayer_settings() -> st.SearchStrategy[DelayerSettings | None]:
    """No prefill delayer three times out of four."""
    settings = st.builds(
        DelayerSettings,
        st.integers(1, 5),
        st.sampled_from((None, 0.3)),
        st.sampled_from((None, 0.5)),
        st.sampled_from((0, 40_000_000)),
    )
    return st.one_of(st.none(), st.none(), st.none(), settings)


def batching_settings() -> st.SearchStrategy[StaticSettings | None]:
    """Continuous batching three times out of four."""
    waits_ns = st.sampled_from((0, 3_000_000, 200_000_000))
    static = st.builds(StaticSettings, st.integers(1, 8), waits_ns)
    return st.one_of(st.none(), st.none(), st.none(), static)


def admission_settings() -> st.SearchStrategy[PackSettings | None]:
    """SGLang's admission (None) in one half of the cases, packing in the other."""
    pack = st.builds(PackSettings, st.integers(1, 8), st.integers(1, 5), st.booleans())
    return st.one_of(st.none(), pack)


def fairness_settings() -> st.SearchStrategy[FairnessSettings | None]:
    """No fairness rule, or any of them."""
    return st.one_of(
        st.none(),
        st.none(),
        st.sampled_from((0, 1, 2_000_000, 30_000_000, 10**9)).map(FairnessT),
        st.integers(1, 4).map(KLpm),
        st.sampled_from((1, 10, 1000)).map(AgingTokens),
        st.integers(1, 4).map(ForceFifo),
    )


@st.composite
def _requests(
    draw: st.DrawFn, name: str, arrival_ns: int, patience_ns: Sequence[int | None] = (None,)
) -> ScriptedRequest:
    """A request, which may share a prefix or quote an earlier request's prompt and answer."""
    shared = draw(st.integers(0, 2))
    segments = [(1 + shared, draw(st.integers(1, 60)))] if draw(st.booleans()) else []
    segments.append((draw(st.integers(100, 10_000)), draw(st.integers(1, 60))))
    output = draw(st.integers(1, 40))
    return scripted(
        name,
        *segments,
        output=output,
        limit=draw(st.sampled_from((output, output + 3, output * 4, max(output // 2, 1)))),
        arrival_ns=arrival_ns,
        priority=draw(st.integers(0, 6)),
        ignore_eos=draw(st.integers(0, 5)) == 0,
        session=draw(st.sampled_from(("", "", "a", "b"))),
        gives_up_ns=draw(st.sampled_from(patience_ns)),
        output_seed=1 << 20 | draw(st.integers(0, 3)),
    )


@st.composite
def _phase(draw: st.DrawFn, name: str) -> Phase:
    """Up to six requests of a benchmark, with and without limits and ticks."""
    asked_ns, turns = 0, []
    for i in range(draw(st.integers(1, 6))):
        asked_ns += draw(st.sampled_from((0, 0, 1, 20_000_000)))
        turns.append(Turn(asked_ns, draw(_requests(f"{name}{i}", 0))))
    every_ns = draw(st.sampled_from((None, None, 6_000_000)))
    return Phase(
        turns=turns,
        places=draw(st.sampled_from((None, 1, 3))),
        pause_ns=draw(st.sampled_from((0, 0, 10_000_000))),
        ticks=None if every_ns is None else lambda: count(every_ns, every_ns),
    )


def server_configs() -> st.SearchStrategy[ServerConfig]:
    """Settings of any family."""
    return st.one_of(scheduler_configs(), vllm_configs())


@st.composite
def random_scenarios(
    draw: st.DrawFn,
    configs: st.SearchStrategy[ServerConfig] | None = None,
    *,
    phases: bool = False,
    impatient: bool = False,
) -> RandomScenario:
    """Up to 36 requests on up to three servers, some sent by clients that wait for answers.

    Args:
        draw: given by hypothesis.
        configs: settings of the servers; None: of any family.
        phases: some scenarios also have two phases of a benchmark.
        impatient: some clients give up, and SGLang's servers may have limits on waiting and running
            requests.
    """
    arrival_ns, requests = 0, []
    for i in range(draw(st.integers(1, 18))):
        arrival_ns += draw(st.sampled_from((0, 0, 1, 1_000_000, 7_500_000, 60_000_000)))
        requests.append(
            draw(_requests(f"r{i}", arrival_ns, _PATIENCE_NS if impatient else (None,)))
        )
    clients = []
    for c in range(draw(st.sampled_from((0, 0, 0, 1, 3)))):
        think_ns = draw(st.sampled_from((0, 5_000_000)))
        turns = [Turn(think_ns, draw(_requests(f"c{c}.{i}", 0))) for i in range(2)]
        clients.append(turns)
    benchmark = []
    if phases and draw(st.integers(0, 2)) == 0:
        benchmark = [draw(_phase("p")), draw(_phase("q"))]
    config = draw(server_configs() if configs is None else configs)
    if impatient and isinstance(config, SchedulerConfig):
        config = replace(
            config,
            max_queued_requests=draw(st.sampled_from((None, None, None, 1, 4))),
            waiting_timeout_ns=draw(st.sampled_from((None, None, None, 20_000_371))),
            running_timeout_ns=draw(st.sampled_from((None, None, None, 30_000_371))),
        )
    return RandomScenario(
        workload=listed(requests, clients, benchmark),
        config=config,
        replicas=draw(st.sampled_from((1, 1, 2, 3))),
        step_s=draw(st.sampled_from((0.001, 0.005))),
        host_s=draw(st.sampled_from((0.0, 0.0, 0.0005, 0.02))),
        launch_ns=draw(st.sampled_from((0, 0, 900_000, 25_000_000))),
        host=draw(st.sampled_from((None, None, _HOST))),
        front_ends=draw(st.sampled_from((1, 1, 3))),
    )
