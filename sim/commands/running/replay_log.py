"""Replays a decision log on a scenario: fresh engines get the log's arrivals and times."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from sim.core.batch import OutputScript
from sim.core.errors import InputError
from sim.core.packed import Line
from sim.core.request import Status
from sim.engine.acceptance import Speculation
from sim.engine.logged_decision import DECIDED_FIELDS, HOST_FIELDS, Divergence
from sim.engine.page_pool import PageCounts
from sim.engine.replay import RankReplay, by_step, of_one_server, replay
from sim.engine.server_config import ServerConfig
from sim.families import build_engine, build_executor
from sim.latency.model import each_latency
from sim.runlog.run_log_file import read_lives
from sim.scenario.acceptance_section import recorded_acceptance
from sim.scenario.build import BuiltScenario, build
from sim.scenario.load import load_scenario
from sim.workload.workload import ScriptedRequest, every_request

# Above every replica's number in a log.
_MOST_NUMBERS = 1 << 62


def differing_fields(ours: Line, theirs: Line) -> list[str]:
    """What two steps decide differently; their times may differ."""
    names = ("replica", "rank", *DECIDED_FIELDS, *HOST_FIELDS)
    return [name for name in names if ours.get(name) != theirs.get(name)]


def replay_log(
    log: Path, steps: list[Line], requests: list[Line], scenario: Path, overrides: Sequence[str]
) -> Divergence | None:
    """Replay each replica of the log on its own; returns the first difference.

    A replica that was stopped and started again counts as another one.
    """
    built = build(load_scenario(scenario, overrides))
    if built.kv_bytes is not None:
        reason = "the steps of prefill and decode servers depend on each other"
        raise built.loaded.error(("pools",), f"cannot be replayed: {reason}")
    for name, pool, numbers in _places(built):
        of_steps, of_requests = (
            [
                _line_of(log, line, name, pool, numbers.start)
                for line in lines
                if line["replica"] in numbers
            ]
            for lines in (steps, requests)
        )
        divergence = _replay_servers(log, of_steps, of_requests, pool)
        if divergence is not None:
            where = f"pool {name}, {divergence.where}" if name else divergence.where
            return replace(divergence, where=where)
    return None


def _places(built: BuiltScenario) -> Iterator[tuple[str, BuiltScenario, range]]:
    """Each server pool by name, with the numbers of its replicas, or of their ranks.

    Last comes the scenario, without a name: all replicas if it has no pools.
    """
    first = 0
    for name, pool in built.pools.items():
        number = len(pool.latencies) * _num_ranks(pool)
        yield name, pool, range(first, first + number)
        first += number
    yield "", built, range(first, _MOST_NUMBERS)


def _num_ranks(built: BuiltScenario) -> int:
    return len(list(each_latency(built.latencies[:1])))


def _line_of(log: Path, line: Line, name: str, built: BuiltScenario, first: int) -> Line:
    """A line of a log, with its replica and rank counted from the first of their pool."""
    if line.get("pool", "") != name:
        had = f"replica {line['replica']} in pool {line['pool']}" if "pool" in line else "no pools"
        expected = f"in pool {name}" if name else "in no pool"
        reason = f"has {had}, but the scenario has replica {line['replica']} {expected}"
        raise InputError(f"{log}: {reason}")
    if not name:
        return line
    replica, rank = divmod(line["replica"] - first, _num_ranks(built))
    own = {"replica": replica} if _num_ranks(built) == 1 else {"replica": replica, "rank": rank}
    return {**line, **own}


def _replay_servers(
    log: Path, steps: list[Line], requests: list[Line], built: BuiltScenario
) -> Divergence | None:
    """Replay the replicas of one pool, each time one was up; returns the first difference."""
    built = replace(built, scheduler=_accepting_as_logged(built.scheduler, log, requests))
    known = {request.spec.rid: request for request in every_request(built.workload)}
    num_ranks = _num_ranks(built)
    for line in (*steps, *requests):
        if ("rank" in line) != (num_ranks > 1) or line.get("rank", 0) >= num_ranks:
            had = f"rank {line['rank']}" if "rank" in line else "no ranks"
            raise InputError(f"{log}: has {had}, but the scenario's latency.dp is {num_ranks}")
    life_of = read_lives(log)
    for place in sorted({life_of(step["replica"], step["t_decided_ns"]) for step in steps}):
        number = place[0]
        arrived = [
            line for line in requests if life_of(line["replica"], line["arrival_ns"]) == place
        ]
        of_rank = [
            _rank_of(log, [line for line in arrived if line.get("rank", 0) == rank], known, built)
            for rank in range(num_ranks)
        ]
        steps_of = [s for s in steps if life_of(s["replica"], s["t_decided_ns"]) == place]
        is_alone = num_ranks == 1 and of_rank[0].engine.num_places == 1
        of_log = of_one_server(steps_of) if is_alone else by_step(steps_of)
        divergence = replay(of_rank, of_log, overlaps=built.scheduler.overlaps)
        if divergence:
            return replace(divergence, where=f"replica {number}, {divergence.where}")
    return None


def _accepting_as_logged(config: ServerConfig, log: Path, requests: list[Line]) -> ServerConfig:
    """The settings; with drafts, steps accept as many as those of a real run did, by its log."""
    speculation: Speculation | None = getattr(config, "speculation", None)
    if speculation is None or not any(line.get("accepted_by_step") for line in requests):
        return config
    acceptance = recorded_acceptance(enumerate(requests), log, looks_up=True)
    accepting = replace(speculation, acceptance=acceptance)
    as_logged: ServerConfig = replace(config, speculation=accepting)  # type: ignore[type-var]
    return as_logged


def _rank_of(
    log: Path, arrived: list[Line], known: dict[str, ScriptedRequest], built: BuiltScenario
) -> RankReplay:
    """A fresh engine, and the requests that arrived at a server, or at one rank of it."""
    config = built.scheduler
    executor = build_executor(config)
    pool = PageCounts(config.pool_tokens // config.page_size, config.page_size)
    arrivals = []
    for line in arrived:
        if line["rid"] not in known:
            raise InputError(f"{log}: request {line['rid']} is not in the scenario")
        # A request rejected on arrival, perhaps because too many others waited, is in no engine.
        # One rejected when its turn came has been in a batch, and has a first token.
        if line["status"] == Status.REJECTED.value and line.get("ttft_ns") is None:
            continue
        request = known[line["rid"]].sent_at(line["arrival_ns"])
        script = request.script
        # The model decided where the output ends, if its client waited for the end.
        if "output_ids" in line and line["status"] == Status.FINISHED.value:
            known_ids = np.array(line["output_ids"], dtype=np.int64)
            script = OutputScript(line["output_tokens"], script.seed, known_ids)
        executor.add(request.spec.rid, script, ignore_eos=request.spec.ignore_eos)
        arrivals.append(request.spec)
    return RankReplay(build_engine(config, pool=pool, executor=executor), executor, arrivals)
