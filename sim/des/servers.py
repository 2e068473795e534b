"""The servers of a simulation: how to simulate them, and what makes them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sim.core.batch import ScriptedExecutor
from sim.core.garbage import rare_collections
from sim.des.clock import Clock
from sim.des.replicas.group import Group
from sim.des.replicas.group_rank import GroupRank
from sim.des.replicas.one_server import FrontEnd, Server
from sim.des.replicas.replica import Replica, ServerOptions
from sim.des.traffic import SimulationLog, Watcher
from sim.engine.core import EngineCore
from sim.engine.page_pool import PageCounts, PagePool
from sim.engine.records import RequestRecord
from sim.engine.request import TokenClock
from sim.engine.server_config import ServerConfig
from sim.engine.store import Store
from sim.families import build_engine, build_executor, check_engine, rank_rules
from sim.latency.host import HostSection
from sim.latency.model import LatencyModel, ReplicaLatency, each_latency

PoolFactory = Callable[[int, int], PagePool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to simulate. None of these options changes the simulated times or decisions.

    Attributes:
        fast_forward: take many decode steps at once where all of them repeat one decision.
        check: verify all invariants after every step; slow.
        decisions: path of the decision log to write; None: write none.
        pool: makes the page pool from `(num_pages, page_size)`.
        meta: further entries of the log's meta data.
        timed_gaps: the log says when each token gap ended.
        on_end: called with the record of each request that has ended. It may raise, to end the run.
    """

    fast_forward: bool = True
    check: bool = False
    decisions: Path | None = None
    watcher: Watcher | None = None
    pool: PoolFactory = PageCounts
    meta: Mapping[str, object] = field(default_factory=dict)
    timed_gaps: bool = False
    on_end: Callable[[RequestRecord], None] | None = None


class Made(NamedTuple):
    """Servers of one simulation.

    Attributes:
        entries: what a request for a replica enters: the replica, or its front end.
    """

    replicas: dict[int, Replica]
    entries: dict[int, Replica | FrontEnd]

    def run(self, env: Clock) -> int:
        """Run to the end; returns the number of steps."""
        for replica in self.replicas.values():
            replica.start()
        run_to_end(env)
        return sum(replica.num_steps for replica in self.replicas.values())

    def engines(self) -> list[EngineCore]:
        """One for each server, or each rank."""
        return [engine for replica in self.replicas.values() for engine in replica.engines]

    def clocks(self) -> list[TokenClock]:
        return [engine.clock for engine in self.engines()]


def run_to_end(env: Clock) -> None:
    """Let everything happen that is to come."""
    with rare_collections():
        env.run()


class Servers(NamedTuple):
    """Servers that are all alike: a deployment, or one of its pools.

    Attributes:
        config: the settings of every server, or of every rank.
        latencies: of each replica: one latency model, because a model may have state; or a tuple
            with one for each of its ranks, which step together. All replicas have equal numbers of
            ranks. With `config.micro_batches` above 1 it must be a `StagedLatency`.
        host: what a request passes before a scheduler can see it. None: nothing.
        num_front_ends: processes of each server's front end, if there is a `host`.
        first: number of the first server or rank in the log; those of other pools come before.
    """

    config: ServerConfig
    latencies: Sequence[ReplicaLatency]
    host: HostSection | None = None
    num_front_ends: int = 1
    first: int = 0

    @property
    def num_ranks(self) -> int:
        return len(list(each_latency(self.latencies[:1])))

    def number(self, index: int) -> int:
        """The number in the log of a replica's first rank."""
        return self.first + index * self.num_ranks

    def make(
        self,
        env: Clock,
        reports: SimulationLog,
        indexes: Iterable[int],
        options: RunOptions,
        *,
        clients_react: bool,
        and_check: Callable[[], None] | None = None,
    ) -> Made:
        """Make some of the replicas.

        `reports` is the log that they write, `indexes` are theirs, from 0. `and_check` is called
        with every check of an engine, if the options ask for checks.
        """
        server_options = ServerOptions(
            overlaps=self.config.overlaps,
            fast_forward=options.fast_forward,
            clients_react=clients_react,
            check=_checks(and_check) if options.check else None,
        )
        num_front_ends = 1 if self.host is None else self.num_front_ends
        maker = _Maker(env, self.config, reports, options.pool, server_options, num_front_ends)
        replicas = {
            index: maker.replica(self.number(index), self.latencies[index]) for index in indexes
        }
        entries: dict[int, Replica | FrontEnd] = dict(replicas)
        if self.host is not None:
            for index, replica in replicas.items():
                entries[index] = FrontEnd(env, self.host, replica, num_front_ends)
        made = Made(replicas, entries)
        for clock in made.clocks():
            clock.keeps_times = options.timed_gaps
        return made

    def meta(self) -> dict[str, object]:
        """What the log's meta data say of them; see `RunLog`."""
        meta: dict[str, object] = {"replicas": len(self.latencies)}
        if self.num_ranks > 1:
            meta["ranks"] = self.num_ranks
        if self.config.micro_batches > 1:
            meta["micro_batches"] = self.config.micro_batches
        speculation = getattr(self.config, "speculation", None)
        if speculation is not None:
            meta["num_speculative_tokens"] = speculation.num_tokens
        meta |= {"max_total_tokens": self.config.pool_tokens, "page_size": self.config.page_size}
        if self.config.host_cache_tokens is not None:
            meta["host_cache_tokens"] = self.config.host_cache_tokens
        return meta


def _checks(and_check: Callable[[], None] | None) -> Callable[[EngineCore], None]:
    if and_check is None:
        return check_engine

    def check(engine: EngineCore) -> None:
        check_engine(engine)
        and_check()

    return check


class _Maker(NamedTuple):
    """Makes servers, and groups of ranks, of one configuration."""

    env: Clock
    config: ServerConfig
    reports: SimulationLog
    pool: PoolFactory
    options: ServerOptions
    num_front_ends: int

    def replica(self, number: int, latency: ReplicaLatency) -> Replica:
        """A server, or a group whose first rank has this number."""
        if isinstance(latency, tuple):
            return self._group(number, latency)
        engine, executor = self._engine()
        return Server(
            self.env,
            number,
            engine=engine,
            executor=executor,
            latency=latency,
            reports=self.reports,
            options=self.options,
        )

    def _group(self, number: int, latencies: tuple[LatencyModel, ...]) -> Group:
        ranks: list[GroupRank] = []
        for rank, each in enumerate(latencies, number):
            stores = ranks[0].engine.scheduler.stores if ranks else ()
            ranks.append(GroupRank(rank, *self._engine(stores), each))
        engines = [rank.engine for rank in ranks]
        rules = rank_rules(self.config, engines, self.num_front_ends)
        reports, options = self.reports, self.options
        return Group(self.env, number, ranks=ranks, rules=rules, reports=reports, options=options)

    def _engine(self, stores: Sequence[Store] = ()) -> tuple[EngineCore, ScriptedExecutor]:
        """An engine; `stores`: those of the ranks of its group that were made before."""
        executor = build_executor(self.config)
        page_size = self.config.page_size
        pool = self.pool(self.config.pool_tokens // page_size, page_size)
        engine = build_engine(self.config, pool=pool, executor=executor)
        own, shared = engine.scheduler.stores, self.env.shared_stores
        used = [
            shared.setdefault(place, each) if each.settings.is_shared else (stores or own)[place]
            for place, each in enumerate(own)
        ]
        if any(each is not mine for each, mine in zip(used, own, strict=True)):
            engine.scheduler.share_stores(used)
        return engine, executor
