"""From a validated scenario to the objects a run needs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sim.core.errors import InputError
from sim.engine.acceptance import Speculation
from sim.engine.server_config import BOTH, DECODE, ServerConfig
from sim.family.section import MemoryForKv
from sim.latency.config import AiconfiguratorLatencyConfig, RecordedLatencyConfig, parallelism
from sim.latency.kinds.build import LatencySetting, ServedBy, build_latency, load_user_latency
from sim.latency.model import LatencyModel, ReplicaLatency
from sim.latency.wrappers import LoadingLatency, StagedLatency
from sim.scenario.kv_pool import memory_for_kv, size_of_pool
from sim.scenario.kv_sizes import (
    ServedModel,
    check_same_kv,
    latency_section,
    load_shapes,
    rank_section,
    transfer_bytes,
)
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import Scenario
from sim.user.objects import FailAt, UserClass, fail_at_key, in_words, names_class
from sim.workload.kinds.build import build_workload
from sim.workload.traces.read import TraceReader, read_trace
from sim.workload.workload import Workload

if TYPE_CHECKING:
    from sim.latency.hardware import Hardware
    from sim.latency.kv_memory import KvBytes
    from sim.latency.shapes import ModelShape


@dataclass(frozen=True, slots=True)
class BuiltScenario:
    """Everything a run needs.

    Attributes:
        scheduler: settings of every replica.
        latencies: a latency model for each replica, or a tuple with one for each of its ranks. Each
            has its own because a latency model may have state.
        model: shapes of the served model; None: the scenario names no model.
        hardware: the accelerator; None: the scenario names none.
        foresees: False: the user's own latency model cannot be asked for times in advance, so the
            run takes its steps one by one.
        pools: the server pools, as if each were a scenario of its own; the scheduler and the
            latencies are then those of the last one. They have the same workload.
        kv_bytes: bytes of KV that each server gets from prefill servers for a request; None: none.
        in_stages: shares the times of another latency model out over the stages of a server; None:
            it has none.
    """

    loaded: LoadedScenario
    workload: Workload
    scheduler: ServerConfig
    latencies: tuple[ReplicaLatency, ...]
    model: "ModelShape | None"
    hardware: "Hardware | None"
    foresees: bool = True
    pools: "Mapping[str, BuiltScenario]" = field(default_factory=dict)
    kv_bytes: "KvBytes | None" = None
    in_stages: Callable[[LatencyModel], LatencyModel] | None = None

    @property
    def served(self) -> ServedModel:
        loaded = self.loaded
        return ServedModel(loaded.scenario, self.model, self.hardware, loaded.base_dir)


def build(loaded: LoadedScenario, *, read_trace: TraceReader = read_trace) -> BuiltScenario:
    """Read the files that the scenario names, and build what it describes.

    Sweeps pass a `read_trace` that caches the rows of traces.

    Raises:
        InputError: one line about a key of the scenario, or about a line of a file that it names.
    """
    with located_errors(loaded):
        workload = build_workload(
            loaded.scenario.workload,
            seed=loaded.scenario.seed,
            base_dir=loaded.base_dir,
            read_trace=read_trace,
        )
    if not loaded.pools:
        return _build_servers(loaded, workload, BOTH)
    sections = loaded.scenario.pools or {}
    pools = {
        name: _build_servers(pool, workload, sections[name].role)
        for name, pool in loaded.pools.items()
    }
    if (transfer := loaded.scenario.transfer) is not None:
        with located_errors(loaded):
            served = {name: pool.served for name, pool in pools.items()}
            check_same_kv(served)
            for name, pool in pools.items():
                if sections[name].role == DECODE:
                    sent = transfer_bytes(transfer, served[name])
                    pools[name] = replace(pool, kv_bytes=sent)
    last = pools[next(reversed(pools))]
    foresees = all(pool.foresees for pool in pools.values())
    return replace(last, loaded=loaded, pools=pools, foresees=foresees)


def _build_servers(loaded: LoadedScenario, workload: Workload, role: str) -> BuiltScenario:
    scenario, base_dir = loaded.scenario, loaded.base_dir
    section = scenario.scheduler.of_role(role)
    scenario = scenario.model_copy(update={"scheduler": section})
    with located_errors(loaded):
        served = ServedModel.of(scenario, base_dir)
        model = served.model
        scheduler = config_of_role(
            scenario, size_of_pool(served), role, model, base_dir=base_dir, fail_at=loaded.error
        )
        kernels_of = _kernel_times(served)
        foreseen: list[bool] = []
        in_stages: list[Callable[[LatencyModel], LatencyModel]] = []

        def latency(replica: int) -> LatencyModel:
            drafts = scenario.scheduler.drafts
            server = ServedBy(
                scheduler.overlaps,
                replica,
                scenario.scheduler.graph_sizes,
                num_drafts=0 if drafts is None else drafts.num_tokens,
                drafter="nothing" if drafts is None else drafts.drafter,
            )
            kernels = kernels_of(server)
            foreseen.append(getattr(kernels, "foresees", True))
            whole = _with_added_times(scenario, model, kernels)
            if scheduler.micro_batches == 1:
                return whole
            layers = _stage_layers(scenario, model, kernels)
            in_stages.append(partial(StagedLatency, kernels=kernels, layers=layers))
            return in_stages[-1](whole)

        ranks = parallelism(scenario.latency).dp
        latencies: tuple[ReplicaLatency, ...] = tuple(
            latency(replica) if ranks == 1 else tuple(latency(replica) for _ in range(ranks))
            for replica in range(scenario.most_replicas)
        )
    return BuiltScenario(
        loaded,
        workload,
        scheduler,
        latencies,
        model,
        served.hardware,
        foresees=all(foreseen),
        in_stages=in_stages[0] if in_stages else None,
    )


def config_of_role(
    scenario: Scenario,
    pool_tokens: int,
    role: str,
    model: "ModelShape | None",
    *,
    base_dir: Path = Path(),
    fail_at: FailAt = fail_at_key,
) -> ServerConfig:
    """As `scheduler_config_with_pool`, on a server of a role, whose section the scenario has."""
    config = scheduler_config_with_pool(scenario, pool_tokens, base_dir=base_dir, fail_at=fail_at)
    of_role: ServerConfig = rank_section(scenario).with_role(config, role, model)
    return of_role


def _kernel_times(served: ServedModel) -> Callable[[ServedBy], LatencyModel]:
    """Returns what makes the latency model of a server, without the times of loads and the host."""
    scenario, model, hardware, base_dir = served
    section = latency_section(scenario)
    if isinstance(section, UserClass):
        own = load_user_latency(section, base_dir)
        return lambda server: own(LatencySetting(model, hardware, base_dir, server))
    return lambda server: build_latency(
        section,
        model=model,
        hardware=hardware,
        base_dir=base_dir,
        model_name=scenario.model,
        server=server,
    )


def _with_added_times(
    scenario: Scenario, model: "ModelShape | None", latency: LatencyModel
) -> LatencyModel:
    """The latency model, with the times that loads from host memory and the host add to steps.

    Recorded step times include the loads.
    """
    section = scenario.latency
    times = scenario.scheduler.load_times(model, parallelism(section).tp)
    if times is not None and not isinstance(section, RecordedLatencyConfig):
        latency = LoadingLatency(latency, times)
    if scenario.host is None:
        return latency
    from sim.latency.hosted import HostedLatency, HostedServer

    num_subquadratic = 0 if model is None else model.num_subquadratic_layers
    server = HostedServer(
        _num_layers(model, latency), num_subquadratic, scenario.scheduler.prefill_graph_tokens
    )
    return HostedLatency(latency, scenario.host, server)


def _num_layers(model: "ModelShape | None", latency: LatencyModel) -> int:
    """The model's layers; 0: neither the scenario nor the latency model says."""
    return getattr(latency, "num_layers", 0) if model is None else model.num_layers


def _stage_layers(
    scenario: Scenario, model: "ModelShape | None", kernels: LatencyModel
) -> Sequence[int]:
    stages = parallelism(scenario.latency).pp
    return scenario.scheduler.stage_layers(_num_layers(model, kernels), stages)


def check_packages(loaded: LoadedScenario) -> None:
    """Check that what step times need is installed, before points are run that all need it."""
    for each in (loaded, *loaded.pools.values()):
        if isinstance(latency_section(each.scenario), AiconfiguratorLatencyConfig):
            from sim.latency.aiconfigurator.package import installed_version

            with located_errors(each):
                installed_version()


def scheduler_config_with_pool(
    scenario: Scenario,
    pool_tokens: int,
    *,
    base_dir: Path = Path(),
    fail_at: FailAt = fail_at_key,
) -> ServerConfig:
    """The scheduler's settings on a server whose pool size is known.

    Users' own classes are searched for in `base_dir`. `fail_at` makes errors about them, also
    during the run: `LoadedScenario.error` names file and line.
    """

    def find_model() -> "ModelShape | None":
        return load_shapes(scenario, base_dir)[0]

    def find_memory(key: tuple[str, ...]) -> MemoryForKv:
        return memory_for_kv(ServedModel.of(scenario, base_dir), key)

    section = rank_section(scenario).for_model(find_model).for_memory(find_model, find_memory)
    settings = section.config(pool_tokens)
    settings = section.with_load_times(settings, find_model, parallelism(scenario.latency).tp)
    stages = parallelism(scenario.latency).pp
    if stages > 1:
        settings = section.pipeline_config(settings, stages)
    if scenario.store is not None and section.uses_store:
        model = None if scenario.model is None else find_model()
        token_bytes = None
        if model is not None:
            tp = parallelism(scenario.latency).tp
            token_bytes = section.store_bytes_per_token(model, tp)
        store = scenario.store.settings(section.store_page_size, token_bytes)
        settings = section.with_store(settings, store)
    config: ServerConfig = section.with_user_code(settings, base_dir, fail_at)
    drafts = section.drafts
    if drafts is None or scenario.acceptance is None:
        return config
    acceptance = scenario.acceptance.load(
        drafts.num_tokens, base_dir, looks_up=drafts.drafter == "nothing"
    )
    speculation = Speculation(drafts.method, drafts.num_tokens, acceptance, *drafts.lookup)
    speculating: ServerConfig = replace(config, speculation=speculation)  # type: ignore[type-var]
    return speculating


@contextmanager
def located_errors(loaded: LoadedScenario) -> Iterator[None]:
    """A context that adds file and line to errors about a key of the scenario.

    An error about another file already names that file, and passes unchanged. Whatever a user's own
    family raises becomes an error about its key.
    """
    try:
        yield
    except InputError as error:
        if not error.key:
            raise
        raise loaded.error(error.key, error.reason) from None
    except OSError:
        raise
    except Exception as error:
        family = loaded.scenario.scheduler.family
        if not names_class(family):
            raise
        raise loaded.error(("scheduler", "family"), f"{family} raised {in_words(error)}") from error
