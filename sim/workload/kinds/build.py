"""From a scenario's `workload:` section to the workload it describes; workloads made of others."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import merge
from itertools import accumulate, islice
from pathlib import Path

from sim.user.objects import UserClass
from sim.workload.bench_command import BenchConfig
from sim.workload.config import (
    AgentsConfig,
    ClientsConfig,
    FittedConfig,
    MixConfig,
    SessionsConfig,
    SyntheticConfig,
    TraceConfig,
    UnmixedConfig,
    WorkloadConfig,
)
from sim.workload.kinds.context import BuildContext
from sim.workload.rng import RandomStreams, TokenStreams
from sim.workload.traces.read import TraceReader, read_trace
from sim.workload.workload import LazySequence, ScriptedRequest, Turn, Workload, num_requests


def build_workload(
    config: WorkloadConfig, *, seed: int, base_dir: Path, read_trace: TraceReader = read_trace
) -> Workload:
    """Build the workload. All reading, drawing and checking happens here, before the run.

    Paths of traces are relative to `base_dir`. Sweeps pass a `read_trace` that caches rows.

    Raises:
        InputError: a trace file is bad (the error names the line), or a drawn size is too large
            (the error names the key).
    """
    context = BuildContext(
        ("workload",), base_dir, RandomStreams(seed), TokenStreams(), read_trace=read_trace
    )
    if isinstance(config, MixConfig):
        return mixed(_build_parts(config, context))
    return _build(config, context)


def _build_parts(config: MixConfig, context: BuildContext) -> list[Workload]:
    parts: list[Workload] = []
    for index, part in enumerate(config.parts):
        part_context = BuildContext(
            key=(*context.key, "parts", index, "workload"),
            base_dir=context.base_dir,
            random=context.random.scoped(f"tenant {part.tenant}"),
            streams=context.streams,
            mixed=True,
            read_trace=context.read_trace,
        )
        parts.append(of_tenant(part.tenant, _build(part.workload, part_context)))
    return parts


def _build(config: UnmixedConfig | BenchConfig, context: BuildContext) -> Workload:
    match config:
        case TraceConfig():
            from sim.workload.kinds.recorded import build_trace

            return build_trace(config, context)
        case SyntheticConfig() | ClientsConfig() | SessionsConfig():
            from sim.workload.kinds.synthetic import build_drawn

            return build_drawn(config, context)
        case AgentsConfig():
            from sim.workload.kinds.agents import build_agents

            return build_agents(config, context)
        case FittedConfig():
            from sim.workload.fitted.draw import build_fitted

            return build_fitted(config, context)
        case BenchConfig():
            from sim.workload.kinds.bench import build_bench

            return build_bench(config, context)
        case UserClass():
            from sim.workload.kinds.user_workload import build_user_workload

            return build_user_workload(config, context)


def of_tenant(tenant: str, whole: Workload) -> Workload:
    """The workload, whose requests get a tenant. Their ids and session ids begin with its name."""

    def labelled(request: ScriptedRequest) -> ScriptedRequest:
        spec = request.spec.copy()
        if spec.session:
            spec.session = f"{tenant}-{spec.session}"
        spec.rid, spec.tenant = f"{tenant}-{spec.rid}", tenant
        return ScriptedRequest(spec, request.script)

    def turn(turn: Turn) -> Turn:
        sub_agents = tuple(map(turns_of, turn.sub_agents))
        return Turn(turn.think_ns, labelled(turn.request), sub_agents, turn.needs_tool)

    def turns_of(turns: Sequence[Turn]) -> Sequence[Turn]:
        return LazySequence(len(turns), lambda place: turn(turns[place]))

    return replace(
        whole,
        arrivals=lambda: map(labelled, whole.arrivals()),
        clients=LazySequence(len(whole.clients), lambda number: turns_of(whole.clients[number])),
        notes=tuple(f"{tenant}: {note}" for note in whole.notes),
    )


def mixed(parts: Sequence[Workload]) -> Workload:
    """All parts at once. Requests that arrive at the same time keep the order of the parts."""
    ends = list(accumulate(len(part.clients) for part in parts))

    def client(number: int) -> Sequence[Turn]:
        part = next(i for i, end in enumerate(ends) if number < end)
        return parts[part].clients[number - ends[part]]

    return Workload(
        num_requests=sum(part.num_requests for part in parts),
        # heapq.merge keeps the order of its inputs where keys are equal.
        arrivals=lambda: merge(
            *(part.arrivals() for part in parts), key=lambda request: request.spec.arrival_ns
        ),
        clients=LazySequence(ends[-1], client),
        groups=[
            replace(group, first=group.first + begin, end=group.end + begin)
            for part, begin in zip(parts, [0, *ends], strict=False)
            for group in part.groups
        ],
        notes=tuple(note for part in parts for note in part.notes),
    )


def first_requests(whole: Workload, most: int) -> Workload:
    """At most `most` requests of a workload, at least 1: those that are asked for first.

    When a client's turn is asked for depends on how long its answers take. Here only its pauses
    count, and its sub-agents come with their turn, on top. The phases of a benchmark come after
    everything else, one after the other.
    """
    # Number -1 stands for open-loop traffic, other numbers for clients.
    opened = ((arrival.spec.arrival_ns, -1) for arrival in whole.arrivals())
    turned = (_asked(turns, number) for number, turns in enumerate(whole.clients))
    num_open, num_turns = 0, [0] * len(whole.clients)
    for _, number in islice(merge(opened, *turned), most):
        if number < 0:
            num_open += 1
        else:
            num_turns[number] += 1
    num_left, phases = most - num_open - sum(num_turns), []
    for phase in whole.phases:
        if num_left:
            phases.append(replace(phase, turns=phase.turns[:num_left]))
            num_left -= len(phases[-1].turns)
    clients = [turns[:kept] for turns, kept in zip(whole.clients, num_turns, strict=True)]
    num_extra = sum(map(num_requests, clients)) - sum(num_turns)
    return replace(
        whole,
        num_requests=most - num_left + num_extra,
        arrivals=lambda: islice(whole.arrivals(), num_open),
        clients=clients,
        phases=phases,
        client=None,
    )


def _asked(turns: Sequence[Turn], number: int) -> Iterator[tuple[int, int]]:
    """When each turn of a client is asked for if answers take no time, with the client's number."""
    return ((at_ns, number) for at_ns in accumulate(turn.think_ns for turn in turns))
