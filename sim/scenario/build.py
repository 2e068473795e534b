"""From a validated scenario to the objects a run needs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sim.core.errors import InputError
from sim.engine.server_config import ServerConfig
from sim.latency.build import build_latency
from sim.latency.config import RecordedLatencyConfig, num_devices, num_ranks
from sim.latency.hardware import Hardware, load_hardware
from sim.latency.loading import LoadingLatency
from sim.latency.model import LatencyModel, ReplicaLatency
from sim.latency.shape_files import load_model_shape
from sim.latency.shapes import ModelShape
from sim.scenario.load import LoadedScenario, user_code_key
from sim.scenario.schema import Scenario
from sim.server_section import Fail
from sim.workload.build import build_workload
from sim.workload.traces.read import TraceReader, read_trace
from sim.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class BuiltScenario:
    """Everything a run needs.

    Attributes:
        loaded: the scenario it was built from.
        workload: all traffic.
        scheduler: settings of every replica.
        latencies: one model for each replica, or for each rank of a replica, as a model may have
            state.
        model: shapes of the served model, if the scenario names one.
        hardware: the accelerator, if the scenario names one.
    """

    loaded: LoadedScenario
    workload: Workload
    scheduler: ServerConfig
    latencies: tuple[ReplicaLatency, ...]
    model: ModelShape | None
    hardware: Hardware | None


def build(loaded: LoadedScenario, *, read_trace: TraceReader = read_trace) -> BuiltScenario:
    """Read the files the scenario refers to and build what it describes.

    Args:
        loaded: the scenario.
        read_trace: reads the rows of a trace; callers that build often pass one that caches them.

    Raises:
        InputError: one line, about the scenario's key or about a line of the file it refers to.
    """
    scenario, base_dir = loaded.scenario, loaded.base_dir
    with located_errors(loaded):
        model, hardware = load_shapes(scenario, base_dir)
        scheduler = scenario.scheduler.with_user_code(
            _scheduler_config(scenario, model, hardware), base_dir, user_code_error(loaded)
        )

        def latency(replica: int) -> LatencyModel:
            model_of_rank = build_latency(
                scenario.latency,
                model=model,
                hardware=hardware,
                base_dir=base_dir,
                overlaps=scheduler.overlaps,
                replica=replica,
            )
            return _with_loads(scenario, model, model_of_rank)

        ranks = num_ranks(scenario.latency)
        latencies: tuple[ReplicaLatency, ...] = tuple(
            latency(replica) if ranks == 1 else tuple(latency(replica) for _ in range(ranks))
            for replica in range(scenario.replicas)
        )
        workload = build_workload(
            scenario.workload, seed=scenario.seed, base_dir=base_dir, read_trace=read_trace
        )
    return BuiltScenario(loaded, workload, scheduler, latencies, model, hardware)


def _with_loads(
    scenario: Scenario, model: ModelShape | None, latency: LatencyModel
) -> LatencyModel:
    """The latency model, with the time that loads from host memory add to steps.

    Recorded times contain their loads already.
    """
    section = scenario.latency
    times = scenario.scheduler.load_times(model, num_devices(section) // num_ranks(section))
    if times is None or isinstance(section, RecordedLatencyConfig):
        return latency
    return LoadingLatency(latency, times)


def load_shapes(scenario: Scenario, base_dir: Path) -> tuple[ModelShape | None, Hardware | None]:
    """The model and hardware a scenario names. Raises InputError where a name is unknown."""
    model = None if scenario.model is None else load_model_shape(scenario.model, base_dir)
    hardware = None if scenario.hardware is None else load_hardware(scenario.hardware)
    return model, hardware


def build_scheduler_config(scenario: Scenario, *, base_dir: Path = Path()) -> ServerConfig:
    """The scheduler's settings; the pool size is derived if the scenario does not give it.

    Raises:
        InputError: an unknown model or hardware, or no room for a page beside the weights.
    """
    config = _scheduler_config(scenario, *load_shapes(scenario, base_dir))
    return _with_user_code(scenario, config, base_dir, None)


def _scheduler_config(
    scenario: Scenario, model: ModelShape | None, hardware: Hardware | None
) -> ServerConfig:
    pool_tokens = scenario.scheduler.pool_tokens
    if pool_tokens is None:
        pool_tokens = _derive_pool_tokens(scenario, model, hardware)
    config = scenario.scheduler.config(pool_tokens)
    ranks = num_ranks(scenario.latency)
    return config if ranks == 1 else scenario.scheduler.rank_config(config, ranks)


def scheduler_config_with_pool(
    scenario: Scenario,
    pool_tokens: int,
    *,
    base_dir: Path = Path(),
    fail: Fail | None = None,
) -> ServerConfig:
    """The scheduler's settings on a server whose pool size is known.

    Args:
        scenario: what the server serves.
        pool_tokens: KV tokens of the pool.
        base_dir: the scenario's folder, in which a user's own class is looked for.
        fail: makes an error from a reason; see `user_code_error`. None: one without file and line.

    Raises:
        InputError: a user's own class cannot be loaded.
    """
    config = scenario.scheduler.config(pool_tokens)
    return _with_user_code(scenario, config, base_dir, fail)


def user_code_error(loaded: LoadedScenario) -> Fail:
    """A function that makes errors about a user's own class, with file and line, from reasons."""
    return partial(loaded.error, user_code_key(loaded.scenario))


def _with_user_code(
    scenario: Scenario, config: ServerConfig, base_dir: Path, fail: Fail | None
) -> ServerConfig:
    def bare_error(reason: str) -> InputError:
        return InputError(reason, key=user_code_key(scenario))

    made: ServerConfig = scenario.scheduler.with_user_code(config, base_dir, fail or bare_error)
    return made


def _derive_pool_tokens(
    scenario: Scenario, model: ModelShape | None, hardware: Hardware | None
) -> int:
    """KV tokens, in whole pages, that fit into the static share of memory beside the weights."""
    section = scenario.scheduler
    key = ("scheduler", section.pool_key)
    if model is None or hardware is None:
        raise InputError("is required without model and hardware", key=key)
    if num_devices(scenario.latency) > 1:
        parallel = "tp" if num_ranks(scenario.latency) == 1 else "dp"
        raise InputError(f"is required with latency.{parallel} above 1", key=key)
    share_key, share = section.memory_share
    room = int(hardware.memory_bytes * share) - model.weight_bytes
    pages = room // (model.kv_bytes_per_token * section.page_size) - section.num_pages_kept_back
    if pages < 1:
        raise InputError(
            f"{model.name} does not fit: its weights take {_gib(model.weight_bytes)} of the"
            f" {_gib(hardware.memory_bytes * share)} that {share_key} {share} leaves on"
            f" {hardware.name}",
            key=("model",),
        )
    return pages * section.page_size


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"


@contextmanager
def located_errors(loaded: LoadedScenario) -> Iterator[None]:
    """Raise errors about a key of the scenario again, with its file and line.

    Errors about another file are left as they are: they name it already.
    """
    try:
        yield
    except InputError as error:
        if not error.key:
            raise
        raise loaded.error(error.key, error.reason) from None
