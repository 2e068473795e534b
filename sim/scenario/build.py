"""From a validated scenario to the objects a run needs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sim.core.errors import InputError
from sim.engine.server_config import ServerConfig
from sim.latency.build import ServedBy, build_latency
from sim.latency.config import (
    AiconfiguratorLatencyConfig,
    LatencyConfig,
    RecordedLatencyConfig,
    num_devices,
    num_ranks,
    num_stages,
)
from sim.latency.host import HostedLatency, HostedServer
from sim.latency.loading import LoadingLatency
from sim.latency.model import LatencyModel, ReplicaLatency
from sim.latency.stages import StagedLatency
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import Scenario
from sim.scenario.speculating import speculating
from sim.server_section import ServerSection
from sim.user_class import UserClass, names_class
from sim.user_objects import FailAt, fail_at_key, in_words
from sim.workload.build import build_workload
from sim.workload.traces.read import TraceReader, read_trace
from sim.workload.workload import Workload

if TYPE_CHECKING:
    from sim.latency.aiconfigurator.package import Room
    from sim.latency.hardware import Hardware
    from sim.latency.shapes import ModelShape

_KV_ELEMENT_BYTES = {"bfloat16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True)
class BuiltScenario:
    """Everything a run needs.

    Attributes:
        loaded: the scenario it was built from.
        workload: all traffic.
        scheduler: settings of every replica.
        latencies: a latency model for each replica, or a tuple with one for each of its ranks. Each
            has its own because a latency model may have state.
        model: shapes of the served model; None: the scenario names no model.
        hardware: the accelerator; None: the scenario names none.
        foresees: False: the user's own latency model cannot be asked for times in advance, so the
            run takes its steps one by one.
    """

    loaded: LoadedScenario
    workload: Workload
    scheduler: ServerConfig
    latencies: tuple[ReplicaLatency, ...]
    model: "ModelShape | None"
    hardware: "Hardware | None"
    foresees: bool = True


def build(loaded: LoadedScenario, *, read_trace: TraceReader = read_trace) -> BuiltScenario:
    """Read the files that the scenario names, and build what it describes.

    Args:
        loaded: the scenario.
        read_trace: reads the rows of a trace; sweeps pass a reader that caches them.

    Raises:
        InputError: one line about a key of the scenario, or about a line of a file that it names.
    """
    scenario, base_dir = loaded.scenario, loaded.base_dir
    with located_errors(loaded):
        model, hardware = load_shapes(scenario, base_dir)
        pool_tokens = _pool_tokens(scenario, model, hardware, base_dir)
        scheduler = scheduler_config_with_pool(
            scenario, pool_tokens, base_dir=base_dir, fail_at=loaded.error
        )
        kernels_of = _kernel_times(scenario, model, hardware, base_dir)
        foreseen: list[bool] = []

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
            return StagedLatency(whole, kernels, _stage_layers(scenario, model, kernels))

        ranks = num_ranks(scenario.latency)
        latencies: tuple[ReplicaLatency, ...] = tuple(
            latency(replica) if ranks == 1 else tuple(latency(replica) for _ in range(ranks))
            for replica in range(scenario.replicas)
        )
        workload = build_workload(
            scenario.workload, seed=scenario.seed, base_dir=base_dir, read_trace=read_trace
        )
    return BuiltScenario(
        loaded, workload, scheduler, latencies, model, hardware, foresees=all(foreseen)
    )


def _kernel_times(
    scenario: Scenario, model: "ModelShape | None", hardware: "Hardware | None", base_dir: Path
) -> Callable[[ServedBy], LatencyModel]:
    """Returns what makes the latency model of a server, without the times of loads and the host."""
    section = _latency_section(scenario)
    if isinstance(section, UserClass):
        from sim.latency.user_latency import LatencySetting, load_user_latency

        own = load_user_latency(section, base_dir)
        return lambda server: own(LatencySetting(model, hardware, base_dir, server))
    built_in = partial(
        build_latency,
        section,
        model=model,
        hardware=hardware,
        base_dir=base_dir,
        model_name=scenario.model,
    )
    return lambda server: built_in(server=server)


def _with_added_times(
    scenario: Scenario, model: "ModelShape | None", latency: LatencyModel
) -> LatencyModel:
    """The latency model, with the times that loads from host memory and the host add to steps.

    Recorded step times include the loads.
    """
    section = scenario.latency
    times = scenario.scheduler.load_times(model, num_devices(section))
    if times is not None and not isinstance(section, RecordedLatencyConfig):
        latency = LoadingLatency(latency, times)
    if scenario.host is None:
        return latency
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
    """The layers of each stage."""
    stages = num_stages(scenario.latency)
    return scenario.scheduler.stage_layers(_num_layers(model, kernels), stages)


def check_packages(loaded: LoadedScenario) -> None:
    """Check that what step times need is installed, before points are run that all need it.

    Raises:
        InputError: an optional package is not installed.
    """
    if isinstance(_latency_section(loaded.scenario), AiconfiguratorLatencyConfig):
        from sim.latency.aiconfigurator.package import installed_version

        with located_errors(loaded):
            installed_version()


def load_shapes(scenario: Scenario, base_dir: Path) -> "tuple[ModelShape | None, Hardware | None]":
    """The model and hardware a scenario names.

    The operators of kind aiconfigurator need no `ModelShape`, and there are models that none
    describes: with that kind the model may be None.

    Raises:
        InputError: a name is unknown, `hardware` is not the GPU of `latency.system`, or the model
            cannot be spread over the GPUs.
    """
    if scenario.model is None and scenario.hardware is None:
        return None, None
    from sim.latency.hardware import check_system, load_hardware
    from sim.latency.model_key import find_model
    from sim.latency.shape_files import shape_if_described, shape_of

    section = scenario.latency
    hardware = None if scenario.hardware is None else load_hardware(scenario.hardware)
    if hardware is not None and isinstance(section, AiconfiguratorLatencyConfig):
        check_system(hardware, section.system)
    if scenario.model is None:
        return None, hardware
    found = find_model(scenario.model, base_dir)
    if isinstance(section, AiconfiguratorLatencyConfig):
        model = shape_if_described(found)
        if model is not None:
            model.check_tp(section.tp)
            model.check_experts(section.moe_ep)
    else:
        model = shape_of(found)
    kv_format = scenario.scheduler.kv_cache_format
    if model is not None and kv_format is not None:
        model = replace(model, kv_element_bytes=_KV_ELEMENT_BYTES[kv_format])
    return model, hardware


def _latency_section(scenario: Scenario) -> LatencyConfig:
    """The section `latency`, with the number format of the KV cache that the scheduler's gives."""
    section, kv_format = scenario.latency, scenario.scheduler.kv_cache_format
    if not isinstance(section, AiconfiguratorLatencyConfig) or kv_format is None:
        return section
    given = section.quantization.kv_cache
    if given not in (None, kv_format):
        reason = f"is {given}, but scheduler.kv_cache_dtype says {kv_format}: give one of them"
        raise InputError(reason, key=("latency", "quantization", "kv_cache"))
    formats = section.quantization.model_copy(update={"kv_cache": kv_format})
    return section.model_copy(update={"quantization": formats})


def build_scheduler_config(scenario: Scenario, *, base_dir: Path = Path()) -> ServerConfig:
    """The scheduler's settings. The pool size is derived if the scenario does not give it.

    Raises:
        InputError: the model or hardware is unknown, no page fits beside the weights, or a user's
            own class cannot be loaded.
    """
    pool_tokens = _pool_tokens(scenario, *load_shapes(scenario, base_dir), base_dir)
    return scheduler_config_with_pool(scenario, pool_tokens, base_dir=base_dir)


def scheduler_config_with_pool(
    scenario: Scenario,
    pool_tokens: int,
    *,
    base_dir: Path = Path(),
    fail_at: FailAt = fail_at_key,
) -> ServerConfig:
    """The scheduler's settings on a server whose pool size is known.

    Args:
        scenario: the scenario that the server runs.
        pool_tokens: size of the KV pool in tokens.
        base_dir: the scenario's folder, which is searched for users' own classes.
        fail_at: makes errors about those classes; it is also called during the run.
            `LoadedScenario.error` names file and line.

    Raises:
        InputError: a user's own class cannot be loaded.
    """

    def find_model() -> "ModelShape | None":
        return load_shapes(scenario, base_dir)[0]

    section = _rank_section(scenario).for_model(find_model)
    settings = section.config(pool_tokens)
    settings = section.with_load_times(settings, find_model, num_devices(scenario.latency))
    stages = num_stages(scenario.latency)
    if stages > 1:
        settings = section.pipeline_config(settings, stages)
    config: ServerConfig = section.with_user_code(settings, base_dir, fail_at)
    if section.drafts is not None and scenario.acceptance is not None:
        return speculating(scenario, config, section.drafts, base_dir)
    return config


def _rank_section(scenario: Scenario) -> ServerSection:
    """The section `scheduler`; with several ranks, what it means for each."""
    ranks = num_ranks(scenario.latency)
    return scenario.scheduler if ranks == 1 else scenario.scheduler.of_rank(ranks)


def _pool_tokens(
    scenario: Scenario, model: "ModelShape | None", hardware: "Hardware | None", base_dir: Path
) -> int:
    """The pool size: as given, or the whole pages that fit beside the weights, in tokens."""
    section = scenario.scheduler
    if section.pool_tokens is not None:
        return section.pool_tokens
    from sim.latency.kv_pool import pool_tokens, weight_bytes_on_gpu
    from sim.scenario.drafter import drafter_of, with_drafter

    share_key, share = section.memory_share
    latency = _latency_section(scenario)
    if isinstance(latency, AiconfiguratorLatencyConfig):
        room = _measured_room(scenario, latency, model, base_dir)
        tokens = room.pool_tokens
        reserved = f" and the engine {_gib(room.reserved_bytes)}" if room.reserved_bytes else ""
        too_large = (
            f"{scenario.model} does not fit: its weights take {_gib(room.weights_bytes)}{reserved}"
            f" of the {_gib(room.budget_bytes)} that {share_key} {share} leaves on"
            f" {_gpus_in_words(latency.tp * latency.dp, latency.system, 'tp x dp')}"
        )
    else:
        if model is None or hardware is None:
            key = ("scheduler", section.pool_key)
            raise InputError("is required without model and hardware", key=key)
        if num_ranks(latency) > 1:
            key = ("scheduler", section.pool_key)
            raise InputError("is required with latency.dp above 1", key=key)
        tp = num_devices(latency)
        model.check_tp(tp)
        model = with_drafter(model, drafter_of(section.drafts, model, base_dir))
        budget = int(hardware.memory_bytes * share)
        stages = num_stages(latency)
        tokens = pool_tokens(
            model,
            budget,
            tp,
            max_rows=section.max_rows,
            window_share=section.window_share,
            layers=section.stage_layers(model.num_layers, stages) if stages > 1 else (),
        )
        too_large = (
            f"{model.name} does not fit: its weights take"
            f" {_gib(weight_bytes_on_gpu(model, tp) / stages)} of"
            f" the {_gib(hardware.memory_bytes * share)} that {share_key} {share} leaves on"
            f" {_gpus_in_words(tp * stages, hardware.name, 'tp x pp')}"
        )
    pages = tokens // section.page_size - section.num_pages_kept_back
    if pages < 1:
        raise InputError(too_large, key=("model",))
    return pages * section.page_size


def _measured_room(
    scenario: Scenario,
    latency: AiconfiguratorLatencyConfig,
    model: "ModelShape | None",
    base_dir: Path,
) -> "Room":
    """What fits beside what the package says the engine keeps in memory."""
    from sim.latency.aiconfigurator.deployment import deployment_of
    from sim.latency.aiconfigurator.package import known_models, kv_room
    from sim.scenario.drafter import drafter_of

    if scenario.model is None:
        raise InputError(f"kind {latency.kind} needs the scenario's model", key=("latency",))
    section = _rank_section(scenario)
    drafter = None if model is None else drafter_of(section.drafts, model, base_dir)
    return kv_room(
        deployment_of(latency, scenario.model, base_dir, known_models()),
        section.memory_share[1],
        max_step_tokens=section.max_step_tokens,
        max_rows=section.max_rows,
        split_layers=section.stage_layers,
        shape=model,
        drafter=drafter,
    )


def _gpus_in_words(num_gpus: int, name: str, product: str) -> str:
    return name if num_gpus == 1 else f"each of {num_gpus} {name} ({product})"


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"


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
