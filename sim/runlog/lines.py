"""The JSON lines of steps and requests, for decision logs and for run logs.

Both simulated and real runs use these functions. docs/reference/decision-log.md explains the keys,
and docs/reference/run-log.md the further keys of real runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from sim.engine.replay.decision import describe_decision
from sim.runlog.builder import StepRun
from sim.runlog.columns import RunLog
from sim.runlog.json_lines import Line
from sim.runlog.servers import LoggedPool

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_FIRST_SERVER: Mapping[str, int] = MappingProxyType({"replica": 0})


class StepTimes(NamedTuple):
    """When a step was decided, when the device started and ended it, host time and launch time."""

    decided_ns: int
    start_ns: int
    end_ns: int
    host_ns: int
    launch_ns: int = 0


def step_line(
    number: int,
    times: StepTimes,
    decided: Mapping[str, Any],
    *,
    place: Mapping[str, int | str] = _FIRST_SERVER,
    measured: Mapping[str, Any] = _NOTHING,
) -> Line:
    """The line of one step, the first of its server being 0.

    `decided` is the result of `describe_decision`, `place` that of `place`, and `measured` has
    further keys of a real run.
    """
    return {
        "kind": "step",
        **place,
        "step": number,
        "t_decided_ns": times.decided_ns,
        "t_start_ns": times.start_ns,
        "t_end_ns": times.end_ns,
        "host_ns": times.host_ns,
        **({"launch_ns": times.launch_ns} if times.launch_ns else {}),
        **measured,
        **decided,
    }


def place(number: int, num_ranks: int, pools: Sequence[LoggedPool] = ()) -> Mapping[str, int | str]:
    """The keys that tell a server, or a rank of a replica with several; and its pool, if any."""
    for pool in pools:
        if pool.has(number):
            return {"replica": number, "pool": pool.name, "role": pool.role}
    replica, rank = divmod(number, num_ranks)
    return {"replica": replica} if num_ranks == 1 else {"replica": replica, "rank": rank}


def step_lines(
    run: StepRun, crc: int, where: Mapping[str, int | str] = _FIRST_SERVER
) -> Iterator[Line]:
    """One line for each step of a run; `crc` is the `decode_crc` of its batch."""
    decided = describe_decision(run.batch, run.state, crc)
    times = StepTimes(run.decided_ns, run.start_ns, run.first_end_ns, run.host_ns, run.launch_ns)
    yield step_line(run.first_step, times, decided, place=where)
    further = run.further
    if further is None:
        return
    decided = describe_decision(run.batch, further.state, crc)
    decided |= {"retracted": [], "preempted": [], "aborted": []}
    not_evictable = further.state.free_tokens + further.state.used_tokens
    columns = (further.decided_ns, further.starts_ns, further.ends_ns, further.host_ns)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    after = zip(rows, further.run.free_tokens().tolist(), further.run.ratio, strict=True)
    for number, (times_ns, free, ratio) in enumerate(after, start=run.first_step + 1):
        decided["ctx"] += decided["n_decode"]
        decided |= {"free": free, "used": not_evictable - free, "ratio": ratio}
        decided_ns, start_ns, end_ns, host_ns = times_ns
        times = StepTimes(decided_ns, start_ns, end_ns, host_ns, further.launch_ns)
        yield step_line(number, times, decided, place=where)


class RequestFacts(NamedTuple):
    """What every log says about a request. A negative time means that the event never happened.

    Attributes:
        rid: the request's id.
        place: the keys that tell its server (`place`).
        arrival_ns, first_token_ns, finish_ns: when it arrived, got its first token, and finished.
        cached_tokens: prompt tokens that the cache held when it was first scheduled.
        host_cached_tokens: those of them in host memory; None if the server keeps no KV there.
        retractions, preemptions: how often it was put back into the queue.
        status: a value of `core.request.Status`.
        warm_up: no metric counts it.
        drafts: steps that verified draft tokens, those tokens, and the accepted ones; None: the
            server does not speculate.
    """

    rid: str
    place: Mapping[str, int | str]
    arrival_ns: int
    first_token_ns: int
    finish_ns: int
    cached_tokens: int
    host_cached_tokens: int | None
    retractions: int
    preemptions: int
    status: str
    warm_up: bool = False
    drafts: tuple[int, int, int] | None = None


def request_line(facts: RequestFacts, measured: Mapping[str, Any] = _NOTHING) -> Line:
    """The line of one request; `measured` has further keys, as those of a real run."""
    arrival_ns, first_token_ns = facts.arrival_ns, facts.first_token_ns
    counts: Line = {"cached_at_admit": facts.cached_tokens}
    if facts.host_cached_tokens is not None:
        counts["host_cached_at_admit"] = facts.host_cached_tokens
    if facts.drafts is not None:
        counts |= zip(("verify_steps", "drafted", "accepted"), facts.drafts, strict=True)
    return {
        "kind": "req",
        "rid": facts.rid,
        **facts.place,
        "arrival_ns": arrival_ns,
        "ttft_ns": first_token_ns - arrival_ns if first_token_ns >= 0 else None,
        "finish_ns": time_or_null(facts.finish_ns),
        **counts,
        "retractions": facts.retractions,
        "preemptions": facts.preemptions,
        "status": facts.status,
        **({"warm_up": True} if facts.warm_up else {}),
        **measured,
    }


def time_or_null(time_ns: int) -> int | None:
    """The time, or None (JSON null) if the event never happened."""
    return time_ns if time_ns >= 0 else None


def request_lines(log: RunLog) -> Iterator[Line]:
    """One line for each request of a simulated run, in order of submission."""
    requests = log.requests
    host_cached = requests.host_cached_tokens.tolist() if log.has_host_tier else None
    counted = (requests.verify_steps, requests.drafted_tokens, requests.accepted_tokens)
    drafts = list(zip(*(column.tolist() for column in counted), strict=True))
    pools, has_drafts = log.pools, log.has_drafts
    for i, rid in enumerate(requests.rid):
        facts = RequestFacts(
            rid=rid,
            place=place(int(requests.replica[i]), log.num_ranks, pools),
            arrival_ns=int(requests.arrival_ns[i]),
            first_token_ns=int(requests.first_token_ns[i]),
            finish_ns=int(requests.finish_ns[i]),
            cached_tokens=int(requests.cached_tokens[i]),
            host_cached_tokens=None if host_cached is None else host_cached[i],
            retractions=int(requests.retractions[i]),
            preemptions=int(requests.preemptions[i]),
            status=requests.status[i],
            warm_up=bool(requests.warm_up[i]),
            drafts=drafts[i] if has_drafts else None,
        )
        yield request_line(facts, _handover_of(log, i))


def _handover_of(log: RunLog, i: int) -> Line:
    """How a request got from its prefill server to its decode server."""
    handovers = log.handovers
    if handovers is None:
        return {}
    return {
        "prefill_replica": time_or_null(int(handovers.prefill_replica[i])),
        "scheduled_ns": time_or_null(int(log.requests.scheduled_ns[i])),
        "room_ns": time_or_null(int(handovers.room_ns[i])),
        "computed_ns": time_or_null(int(handovers.computed_ns[i])),
        "received_ns": time_or_null(int(handovers.received_ns[i])),
        "sent_tokens": int(handovers.sent_tokens[i]),
    }
