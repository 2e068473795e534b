"""Serving a scenario for real, from its file to a run log."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from realrun.clock import WallClock
from realrun.executor import TorchExecutor
from realrun.fingerprint import git_revision
from realrun.kv_tensors import (
    SettingError,
    check_page_size,
    check_room,
    num_pages_that_fit,
)
from realrun.loop import Server
from realrun.model import PagedModel
from realrun.recorder import Recorder
from realrun.rig import Rig, RunnerOptions, load, rig
from realrun.tokens import ForcedTokens, GreedyTokens, Tokens
from realrun.traffic import Traffic
from sim import __version__
from sim.engine.page_pool import PageIds
from sim.engine.server_config import ServerConfig
from sim.families import build_engine
from sim.runlog.json_lines import Line
from sim.scenario.build import (
    located_errors,
    scheduler_config_with_pool,
    user_code_error,
)
from sim.scenario.load import LoadedScenario
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
    workload = servable_workload(loaded)
    with warm_server(loaded, options) as server:
        return server.serve(loaded, workload, sampling, watcher)


def servable_workload(loaded: LoadedScenario) -> Workload:
    """What the scenario asks of a server, once it is clear that a real one could serve it.

    Raises:
        InputError: it names no model, several replicas, host memory, or a page size that the
            runner has not.
    """
    scenario = loaded.scenario
    if scenario.model is None:
        raise loaded.error(("model",), "is required to run for real")
    if scenario.replicas != 1:
        raise loaded.error(("replicas",), f"a real run serves 1, not {scenario.replicas}")
    if (obstacle := scenario.scheduler.check_real_run()) is not None:
        key, reason = obstacle
        raise loaded.error(("scheduler", key), reason)
    with _about(loaded, scenario.scheduler.page_key):
        check_page_size(scenario.scheduler.page_size)
    with located_errors(loaded):
        return build_workload(scenario.workload, seed=scenario.seed, base_dir=loaded.base_dir)


class WarmServer:
    """Serves scenarios one after the other on one runner. Made by `warm_server`."""

    def __init__(self, kit: Rig, first: LoadedScenario, pool_tokens: int) -> None:
        self._kit = kit
        self._first = first
        self._pool_tokens = pool_tokens

    def serve(
        self,
        loaded: LoadedScenario,
        workload: Workload,
        sampling: Sampling = "forced",
        watcher: Callable[[Workload], Watcher] | None = None,
    ) -> RealRun:
        """Serve a scenario's workload in real time, to its end.

        Raises:
            InputError: the scenario needs another runner than the one that is warm.
        """
        check_same_runner(self._first, loaded)
        config = _config(loaded, self._kit.runner.model, self._pool_tokens)
        watch = watcher(workload) if watcher is not None else None
        recorder = serve(self._kit, config, workload, sampling, watch)
        return RealRun(_meta(loaded, config, self._kit, sampling), list(recorder.lines()))


@contextmanager
def warm_server(loaded: LoadedScenario, options: RunnerOptions) -> Iterator[WarmServer]:
    """A warm runner for a scenario, and for all that differ from it in nothing a runner sees.

    Raises:
        InputError: the model, the device or the pool cannot be had.
    """
    model = load(str(loaded.scenario.model), options, loaded.base_dir)
    section = loaded.scenario.scheduler
    pool_tokens = _pool_tokens(loaded, model)
    _config(loaded, model, pool_tokens)
    num_pages = pool_tokens // section.page_size
    with _about(loaded, section.pool_key):
        check_room(model, num_pages=num_pages, page_size=section.page_size)
    with rig(
        model,
        options,
        num_pages=num_pages,
        page_size=section.page_size,
        max_rows=section.max_rows,
    ) as kit:
        yield WarmServer(kit, loaded, pool_tokens)


def serve(
    kit: Rig,
    config: ServerConfig,
    workload: Workload,
    sampling: Sampling = "forced",
    watcher: Watcher | None = None,
) -> Recorder:
    """Serve a workload on a warm runner, in real time, to its end."""
    executor = TorchExecutor(kit.runner, kit.stream, _tokens(kit.runner.model, sampling))
    pool = PageIds(config.pool_tokens // config.page_size, config.page_size)
    engine = build_engine(config, pool=pool, executor=executor)
    # Under overlap a finished request holds its slot until its result is taken in.
    executor.attach(engine, 2 * config.max_rows + 2)
    traffic = Traffic(workload)
    gc.collect()
    gc.freeze()
    clock = WallClock()
    server = Server(
        engine,
        executor,
        traffic,
        clock,
        overlaps=config.overlaps,
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


def check_same_runner(first: LoadedScenario, other: LoadedScenario) -> None:
    """Raises InputError unless a runner that is warm for one scenario can serve the other."""
    if other.scenario.model != first.scenario.model:
        reason = f"{other.scenario.model} is not the {first.scenario.model} that is loaded"
        raise other.error(("model",), reason)
    if other.scenario.scheduler.family != first.scenario.scheduler.family:
        raise other.error(("scheduler", "family"), "is not the one the warm runner was made for")
    for key in first.scenario.scheduler.runner_keys:
        known, value = (getattr(of.scenario.scheduler, key) for of in (first, other))
        if value != known:
            reason = f"{value} is not the {known} that the warm runner was made for"
            raise other.error(("scheduler", key), reason)


def _config(loaded: LoadedScenario, model: PagedModel, pool_tokens: int) -> ServerConfig:
    """The scheduler's settings, for a pool of so many tokens and a model of so many positions.

    Raises:
        InputError: they do not go together.
    """
    scenario, section = loaded.scenario, loaded.scenario.scheduler
    key, longest = section.longest_request
    if longest is not None and longest > model.max_positions:
        raise loaded.error(
            ("scheduler", key),
            f"{longest} is more than the {model.max_positions} positions of {model.shape.name}",
        )
    # In a simulation a request may be as long as the pool; here what the model can is known.
    section = section.with_longest_request(min(pool_tokens, model.max_positions))
    scenario = scenario.model_copy(update={"scheduler": section})
    with located_errors(loaded):
        return scheduler_config_with_pool(
            scenario, pool_tokens, base_dir=loaded.base_dir, fail=user_code_error(loaded)
        )


@contextmanager
def _about(loaded: LoadedScenario, key: str) -> Iterator[None]:
    """Errors about a setting of the runner are about this key of the scenario's scheduler."""
    try:
        yield
    except SettingError as error:
        raise loaded.error(("scheduler", key), error.reason) from None


def _pool_tokens(loaded: LoadedScenario, model: PagedModel) -> int:
    """KV tokens of the pool: as the scenario says, else as many as the device takes."""
    section = loaded.scenario.scheduler
    if section.pool_tokens is not None:
        return section.pool_tokens
    key, share = section.memory_share
    with _about(loaded, key):
        return num_pages_that_fit(model, section.page_size, share) * section.page_size


def _meta(
    loaded: LoadedScenario, config: ServerConfig, kit: Rig, sampling: Sampling
) -> dict[str, Any]:
    scenario = loaded.scenario
    return {
        "source": "realrun",
        "name": scenario.name,
        "seed": scenario.seed,
        "scenario_hash": loaded.content_hash,
        "scenario": scenario.model_dump(mode="json"),
        "scheduler": config.as_dict(),
        "sampling": sampling,
        "replicas": 1,
        "max_total_tokens": config.pool_tokens,
        "page_size": config.page_size,
        "servetwin_version": __version__,
        "git_revision": git_revision(),
        "fingerprint": kit.fingerprint,
    }
