"""Serves the workload of a scenario in real time, and returns the lines of its run log."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from realrun.clock import WallClock
from realrun.model.fingerprint import git_revision
from realrun.model.kv_tensors import (
    check_room,
    num_pages_that_fit,
)
from realrun.model.paged_model import PagedModel
from realrun.runner.warm_runner import RunnerOptions, WarmRunner, load_with_options, warm_runner
from realrun.server.assemble import assemble, end_ids, quiet_memory
from realrun.server.real_server import RealServer
from realrun.server.run_recorder import RunRecorder
from realrun.server.servable import check_same_runner, errors_about
from realrun.server.traffic import WorkloadTraffic
from realrun.tokens.outputs import ForcedTokens, GreedyTokens, Tokens
from sim import __version__
from sim.core.packed import Line
from sim.engine.records import RequestRecord
from sim.engine.server_config import ServerConfig
from sim.scenario.build import (
    located_errors,
    scheduler_config_with_pool,
)
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import BESIDE_THE_RUN
from sim.workload.workload import Workload

Sampling = Literal["forced", "greedy"]
# Called with the number of ended requests and the time, in ns.
Watcher = Callable[[int, int], None]


class _Watched:
    """Tells a watcher of each request that has ended."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher, self._num_over = watcher, 0

    def generated(self, num_tokens: Mapping[str, int], now_ns: int) -> None:
        pass

    def over(self, record: RequestRecord, now_ns: int) -> None:
        self._num_over += 1
        self._watcher(self._num_over, now_ns)


@dataclass(frozen=True, slots=True)
class RealRun:
    """A finished run.

    Attributes:
        meta: the log's first line: what ran, and where.
        lines: the log's other lines, for steps and requests.
    """

    meta: dict[str, Any]
    lines: list[Line]


class WarmServer:
    """Serves scenarios one after the other on one warm runner. Made by `warm_server`.

    Attributes:
        warm: the runner.
    """

    def __init__(self, warm: WarmRunner, first: LoadedScenario, pool_tokens: int) -> None:
        self.warm = warm
        self._first = first
        self._pool_tokens = pool_tokens

    def config(self, loaded: LoadedScenario) -> ServerConfig:
        """The scheduler's settings for this pool and this model.

        Raises:
            InputError: the scenario needs a different runner.
        """
        check_same_runner(self._first, loaded)
        return _config(loaded, self.warm.runner.model, self._pool_tokens)

    def serve(
        self,
        loaded: LoadedScenario,
        workload: Workload,
        sampling: Sampling = "forced",
        watcher: Watcher | None = None,
    ) -> RealRun:
        """Serve a scenario's workload in real time, to its end.

        Args:
            loaded: the scenario.
            workload: the result of `servable_workload`.
            sampling: `forced`: outputs are the workload's scripts; `greedy`: outputs are the tokens
                that the model finds most likely.
            watcher: called whenever a request ends, with the number of ended requests and the time
                in ns.

        Raises:
            InputError: the scenario needs a different runner.
        """
        config = self.config(loaded)
        recorder = serve(self.warm, config, workload, sampling, watcher)
        return RealRun(run_meta(loaded, config, self.warm, sampling), list(recorder.lines()))


@contextmanager
def warm_server(loaded: LoadedScenario, options: RunnerOptions) -> Iterator[WarmServer]:
    """A context with a warm runner for a scenario, and for others that need the same runner.

    Raises:
        InputError: the model or the device is missing, or the pool does not fit.
    """
    model = load_with_options(str(loaded.scenario.model), options, loaded.base_dir)
    section = loaded.scenario.scheduler
    pool_tokens = _pool_tokens(loaded, model)
    _config(loaded, model, pool_tokens)
    num_pages = pool_tokens // section.page_size
    with errors_about(loaded, section.pool_key):
        check_room(model, num_pages=num_pages, page_size=section.page_size)
    with warm_runner(
        model,
        options,
        num_pages=num_pages,
        page_size=section.page_size,
        max_rows=section.max_rows,
        max_tokens=min(section.max_step_tokens, pool_tokens),
    ) as warm:
        yield WarmServer(warm, loaded, pool_tokens)


def serve(
    warm: WarmRunner,
    config: ServerConfig,
    workload: Workload,
    sampling: Sampling = "forced",
    watcher: Watcher | None = None,
) -> RunRecorder:
    """Serve a workload on a warm runner in real time, until all its requests have ended."""
    model = warm.runner.model
    tokens: Tokens = ForcedTokens()
    if sampling == "greedy":
        tokens = GreedyTokens(model.shape.vocab_size, end_ids(model))
    engine, executor = assemble(warm, config, tokens)
    with quiet_memory(warm):
        # The clock starts last: requests must not wait for the search for garbage.
        server = RealServer(
            engine,
            executor,
            WorkloadTraffic(workload),
            WallClock(),
            overlaps=config.overlaps,
            listener=None if watcher is None else _Watched(watcher),
        )
        server.serve()
    for rid, output_ids in tokens.final_outputs.items():
        server.recorder.answered(rid, output_ids)
    server.recorder.drafted_steps.update(executor.drafted_steps)
    return server.recorder


def _config(loaded: LoadedScenario, model: PagedModel, pool_tokens: int) -> ServerConfig:
    """The scheduler's settings for this pool, and for this model's longest request.

    Raises:
        InputError: the settings do not fit the model or the pool.
    """
    scenario, section = loaded.scenario, loaded.scenario.scheduler
    key, longest = section.longest_request
    if longest is not None and longest > model.max_positions:
        raise loaded.error(
            ("scheduler", key),
            f"{longest} is more than the {model.max_positions} positions of {model.shape.name}",
        )
    # In a simulation a request may be as long as the pool. Here the model is a limit too.
    section = section.with_longest_request(min(pool_tokens, model.max_positions))
    scenario = scenario.model_copy(update={"scheduler": section})
    with located_errors(loaded):
        return scheduler_config_with_pool(
            scenario, pool_tokens, base_dir=loaded.base_dir, fail_at=loaded.error
        )


def _pool_tokens(loaded: LoadedScenario, model: PagedModel) -> int:
    """KV tokens of the pool: the scenario's, or else as many as fit on the device."""
    section = loaded.scenario.scheduler
    if section.pool_tokens is not None:
        return section.pool_tokens
    key, share = section.memory_share
    with errors_about(loaded, key):
        return num_pages_that_fit(model, section.page_size, share) * section.page_size


def run_meta(
    loaded: LoadedScenario, config: ServerConfig, warm: WarmRunner, sampling: str
) -> dict[str, Any]:
    """The first line of a run's log."""
    scenario = loaded.scenario
    drafts = scenario.scheduler.drafts
    return {
        "source": "realrun",
        "name": scenario.name,
        "seed": scenario.seed,
        "scenario_hash": loaded.content_hash,
        "scenario": scenario.model_dump(mode="json", exclude=set(BESIDE_THE_RUN)),
        "scheduler": config.as_dict(),
        "sampling": sampling,
        "replicas": 1,
        "max_total_tokens": config.pool_tokens,
        "page_size": config.page_size,
        "servetwin_version": __version__,
        "git_revision": git_revision(),
        "fingerprint": warm.fingerprint,
        "graph_sizes": warm.graph_sizes,
        **({} if drafts is None else {"num_speculative_tokens": drafts.num_tokens}),
    }
