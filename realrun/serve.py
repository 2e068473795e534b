"""Serving a scenario for real, from its file to a run log."""

import gc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from realrun.clock import WallClock
from realrun.executor import TorchExecutor
from realrun.fingerprint import git_revision
from realrun.kv_tensors import check_page_size, num_pages_that_fit
from realrun.loop import Server
from realrun.model import PagedModel
from realrun.recorder import Recorder
from realrun.rig import Rig, RunnerOptions, load, rig
from realrun.tokens import ForcedTokens, GreedyTokens, Tokens
from realrun.traffic import Traffic
from sim import __version__
from sim.engine.build import build_engine
from sim.kvcache.page_pool import PageIds
from sim.runlog.json_lines import Line
from sim.scenario.build import (
    DEFAULT_MEM_FRACTION_STATIC,
    placed,
    scheduler_config_with_pool,
)
from sim.scenario.load import LoadedScenario
from sim.scheduler.config import SchedulerConfig
from sim.workload.build import build_workload
from sim.workload.workload import Workload

Sampling = Literal["forced", "greedy"]
Watcher = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class RealRun:
    """A finished run.

    Attributes:
        meta: what ran, for the log's first line.
        lines: the log's other lines.
    """

    meta: dict[str, Any]
    lines: list[Line]


def serve_scenario(
    loaded: LoadedScenario,
    options: RunnerOptions,
    sampling: Sampling = "forced",
    watcher: Callable[[Workload], Watcher] | None = None,
) -> RealRun:
    """Load the model, warm it up, and serve the scenario's workload in real time.

    Args:
        loaded: names a model; one replica.
        options: how to run it.
        sampling: `forced` to the workload's scripts, or `greedy`.
        watcher: given the workload, returns who is told of progress.

    Raises:
        InputError: the scenario does not say what a real run needs, or the model, the device or
            the pool cannot be had.
    """
    scenario = loaded.scenario
    if scenario.model is None:
        raise loaded.error(("model",), "is required to run for real")
    if scenario.replicas != 1:
        raise loaded.error(("replicas",), f"a real run serves 1, not {scenario.replicas}")
    check_page_size(scenario.scheduler.page_size)
    with placed(loaded):
        workload = build_workload(scenario.workload, seed=scenario.seed, base_dir=loaded.base_dir)
    model = load(scenario.model, options, loaded.base_dir)
    config = _scheduler_config(loaded, model)
    with rig(
        model,
        options,
        num_pages=config.pool_tokens // config.page_size,
        page_size=config.page_size,
        max_rows=config.max_running_requests,
    ) as kit:
        watch = watcher(workload) if watcher is not None else None
        recorder = serve(kit, config, workload, sampling, watch)
        return RealRun(_meta(loaded, config, kit, sampling), list(recorder.lines()))


def serve(
    kit: Rig,
    config: SchedulerConfig,
    workload: Workload,
    sampling: Sampling = "forced",
    watcher: Watcher | None = None,
) -> Recorder:
    """Serve a workload on a warm runner, in real time, to its end."""
    executor = TorchExecutor(kit.runner, kit.stream, _tokens(kit.runner.model, sampling))
    pool = PageIds(config.pool_tokens // config.page_size, config.page_size)
    engine = build_engine(config, pool=pool, executor=executor)
    # Under overlap a finished request holds its slot until its result is taken in.
    executor.attach(engine, 2 * config.max_running_requests + 2)
    traffic = Traffic(workload)
    gc.collect()
    gc.freeze()
    clock = WallClock()
    server = Server(
        engine,
        executor,
        traffic,
        clock,
        overlaps=not config.disable_overlap_schedule,
        watcher=watcher,
    )
    try:
        server.serve()
    finally:
        kit.stream.synchronise()
        gc.unfreeze()
    server.recorder.output_ids.update(executor.tokens.final_outputs)
    return server.recorder


def _tokens(model: PagedModel, sampling: Sampling) -> Tokens:
    if sampling == "forced":
        return ForcedTokens()
    ends = getattr(model.model.config, "eos_token_id", None)
    end_ids = ends if isinstance(ends, list) else [ends]
    return GreedyTokens(model.vocab_size, frozenset(end for end in end_ids if end is not None))


def _scheduler_config(loaded: LoadedScenario, model: PagedModel) -> SchedulerConfig:
    """The scheduler's settings, the pool as large as the device allows unless it is given."""
    section = loaded.scenario.scheduler
    if section.context_length > model.max_positions:
        raise loaded.error(
            ("scheduler", "context_length"),
            f"{section.context_length} is more than the {model.max_positions} positions of"
            f" {model.shape.name}",
        )
    max_total_tokens = section.max_total_tokens
    if max_total_tokens is None:
        share = section.mem_fraction_static
        share = DEFAULT_MEM_FRACTION_STATIC if share is None else share
        num_pages = num_pages_that_fit(model, section.page_size, share)
        max_total_tokens = num_pages * section.page_size
    return scheduler_config_with_pool(loaded.scenario, max_total_tokens)


def _meta(
    loaded: LoadedScenario, config: SchedulerConfig, kit: Rig, sampling: Sampling
) -> dict[str, Any]:
    scenario = loaded.scenario
    return {
        "source": "realrun",
        "name": scenario.name,
        "seed": scenario.seed,
        "scenario_hash": loaded.content_hash,
        "scenario": scenario.model_dump(mode="json"),
        "scheduler": asdict(config),
        "sampling": sampling,
        "replicas": 1,
        "max_total_tokens": config.pool_tokens,
        "page_size": config.page_size,
        "servetwin_version": __version__,
        "git_revision": git_revision(),
        "fingerprint": kit.fingerprint,
    }
