"""The JSON lines of steps and requests, for decision logs and for run logs.

Both simulated and real runs use these functions. docs/reference/decision-log.md explains the keys,
and docs/reference/run-log.md the further keys of real runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sim.engine.replay.decision import describe_decision
from sim.runlog.builder import StepRun
from sim.runlog.columns import RunLog
from sim.runlog.json_lines import Line
from sim.runlog.servers import LoggedPool

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_FIRST_SERVER: Mapping[str, int] = MappingProxyType({"replica": 0})


def step_times(
    decided_ns: int, start_ns: int, end_ns: int, host_ns: int, launch_ns: int = 0
) -> dict[str, int]:
    """When a step was decided, when the device started and ended it, host time and launch time."""
    times = {"t_decided_ns": decided_ns, "t_start_ns": start_ns, "t_end_ns": end_ns}
    return times | {"host_ns": host_ns} | ({"launch_ns": launch_ns} if launch_ns else {})


def step_line(
    number: int,
    times: Mapping[str, int],
    decided: Mapping[str, Any],
    *,
    place: Mapping[str, int | str] = _FIRST_SERVER,
    measured: Mapping[str, Any] = _NOTHING,
) -> Line:
    """The line of one step, the first of its server being 0.

    `times` is the result of `step_times`, `decided` that of `describe_decision`, `place` that of
    `place`, and `measured` has further keys of a real run.
    """
    return {"kind": "step", **place, "step": number, **times, **measured, **decided}


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
    times = step_times(run.decided_ns, run.start_ns, run.first_end_ns, run.host_ns, run.launch_ns)
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
        decided_ns, start_ns, end_ns, host_ns = times_ns
        decided["ctx"] += decided["n_decode"]
        decided |= {"free": free, "used": not_evictable - free, "ratio": ratio}
        times = step_times(decided_ns, start_ns, end_ns, host_ns, further.launch_ns)
        yield step_line(number, times, decided, place=where)


def request_line(
    rid: str,
    times_ns: tuple[int, int, int],
    counts: Mapping[str, int],
    *,
    status: str,
    warm_up: bool,
    place: Mapping[str, int | str] = _FIRST_SERVER,
    measured: Mapping[str, Any] = _NOTHING,
) -> Line:
    """The line of one request.

    Args:
        rid: the request's id.
        times_ns: when it arrived, got its first token, and finished; a negative time means that
            the event never happened.
        counts: of tokens and steps, by key.
        status: a value of `core.request.Status`.
        warm_up: no metric counts it.
        place: the keys that tell its server, see `place`.
        measured: further keys, as those of a real run.
    """
    arrival_ns, first_token_ns, finish_ns = times_ns
    return {
        "kind": "req",
        "rid": rid,
        **place,
        "arrival_ns": arrival_ns,
        "ttft_ns": first_token_ns - arrival_ns if first_token_ns >= 0 else None,
        "finish_ns": time_or_null(finish_ns),
        **counts,
        "status": status,
        **({"warm_up": True} if warm_up else {}),
        **measured,
    }


def time_or_null(time_ns: int) -> int | None:
    """The time, or None (JSON null) if the event never happened."""
    return time_ns if time_ns >= 0 else None


def request_lines(log: RunLog) -> Iterator[Line]:
    """One line for each request of a simulated run, in order of submission."""
    requests, pools = log.requests, log.pools
    times = (requests.arrival_ns, requests.first_token_ns, requests.finish_ns)
    counted = {"cached_at_admit": requests.cached_tokens}
    if log.has_host_tier:
        counted["host_cached_at_admit"] = requests.host_cached_tokens
    if log.has_drafts:
        counted["verify_steps"] = requests.verify_steps
        counted |= {"drafted": requests.drafted_tokens, "accepted": requests.accepted_tokens}
    counted |= {"retractions": requests.retractions, "preemptions": requests.preemptions}
    for i, rid in enumerate(requests.rid):
        arrival_ns, first_token_ns, finish_ns = (int(column[i]) for column in times)
        yield request_line(
            rid,
            (arrival_ns, first_token_ns, finish_ns),
            {key: int(column[i]) for key, column in counted.items()},
            status=requests.status[i],
            warm_up=bool(requests.warm_up[i]),
            place=place(int(requests.replica[i]), log.num_ranks, pools),
            measured=_handover_of(log, i),
        )


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
