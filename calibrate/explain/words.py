"""What differs between two runs, in words: the second column of the table of causes."""

from collections.abc import Iterable, Sequence

import numpy as np
from pydantic import BaseModel

from calibrate.explain.run import Run, RunPool
from calibrate.explain.times import Stall
from sim.core.errors import shorten
from sim.core.packed import Line
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.tables.table import counted
from sim.workload.workload import ScriptedRequest, Workload, every_request

_MOST_STALLS = 4
_MOST_CHANGES = 4
_MOST_SERVERS = 8


def traffic_words(before: Workload, after: Workload) -> str:
    """How the requests differ, as far as their sizes and times tell."""
    old, new = (
        {request.spec.rid: request for request in every_request(w)} for w in (before, after)
    )
    if old.keys() != new.keys() or any(_sizes(old[rid]) != _sizes(new[rid]) for rid in old):
        return f"{_described(old.values())} -> {_described(new.values())}"
    moved_ns = [abs(old[rid].spec.arrival_ns - new[rid].spec.arrival_ns) for rid in old]
    if max(moved_ns, default=0) == 0:
        return "requests of the same sizes at the same times"
    return f"the same requests, up to {max(moved_ns) / NS_PER_MS:,.1f} ms earlier or later"


def _sizes(request: ScriptedRequest) -> tuple[int, int]:
    return len(request.spec.prompt), request.spec.max_new_tokens


def _described(requests: Iterable[ScriptedRequest]) -> str:
    listed = list(requests)
    arrivals_s = [request.spec.arrival_ns / NS_PER_S for request in listed]
    span_s = max(arrivals_s, default=0) - min(arrivals_s, default=0)
    rate = f", {(len(listed) - 1) / span_s:.3g}/s" if span_s > 0 else ""
    prompt = np.mean([len(request.spec.prompt) for request in listed]) if listed else 0
    return f"{counted(len(listed), 'request')}{rate}, {prompt:,.0f} prompt tokens"


def stall_words(stalls: Sequence[Stall]) -> str:
    """How many there are, how long they are, and when the longest ones were."""
    if not stalls:
        return "none"
    longest = sorted(stalls, key=lambda stall: -stall.lost_ns)[:_MOST_STALLS]
    when = ", ".join(
        f"{stall.lost_ns / NS_PER_S:.2f} s at {stall.at_ns / NS_PER_S:.1f} s"
        f" ({'host' if stall.on_host else 'device'})"
        for stall in sorted(longest)
    )
    more = f" and {len(stalls) - len(longest)} more" if len(stalls) > len(longest) else ""
    return f"{when}{more}"


def stalls_of_servers(servers: Sequence[Sequence[Stall]]) -> str:
    """The stalls of each server that has any."""
    if len(servers) < 2:
        return stall_words([stall for stalls in servers for stall in stalls])
    found = [
        f"server {number}: {stall_words(stalls)}" for number, stalls in enumerate(servers) if stalls
    ]
    return "; ".join(found) or "none"


def fleet_words(pool: RunPool) -> str:
    """How many servers there are, and what each is made of."""
    setup = pool.setup
    parts = [(setup.num_ranks, "ranks"), (pool.num_stages, "stages")]
    each = "".join(f" of {number} {what}" for number, what in parts if number > 1)
    most = "up to " if setup.autoscale is not None else ""
    return f"{most}{setup.num_servers}{each}"


def pool_words(run: Run) -> str:
    """The servers of every pool."""
    found = [f"{fleet_words(pool)} {name}".rstrip() for name, pool in run.pools.items()]
    return ", ".join(found)


def router_words(run: Run, pool: str) -> str:
    """The router by its kind, or by the user's class."""
    if run.served_by:
        return "as recorded"
    router = run.pools[pool].scenario.router
    return router if isinstance(router, str) else str(getattr(router, "kind", router))


def changed_words(before: object, after: object, keys: Iterable[str] | None = None) -> list[str]:
    """Which keys of a section, and of the sections in it, say something else, and what.

    `keys` of the section itself; None: all.
    """
    if not isinstance(before, BaseModel) or type(before) is not type(after):
        return [f"{_value_words(before)} -> {_value_words(after)}"]
    found: list[str] = []
    for key in keys or type(before).model_fields:
        old, new = getattr(before, key), getattr(after, key)
        if old != new:
            inner = changed_words(old, new)
            nested = isinstance(old, BaseModel) and type(old) is type(new)
            found += [f"{key}.{words}" if nested else f"{key} {words}" for words in inner]
    more = [f"{len(found) - _MOST_CHANGES} more"] if len(found) > _MOST_CHANGES else []
    return found[:_MOST_CHANGES] + more


def _value_words(value: object) -> str:
    return shorten(str(getattr(value, "kind", value)))


def prefill_words(before: RunPool, after: RunPool) -> str:
    return _ratio_words(before, after, prefills=True)


def decode_words(before: RunPool, after: RunPool) -> str:
    """How much longer a decode step takes, and whether it lost its CUDA graph."""
    words = _ratio_words(before, after, prefills=False)
    old, new = _eager_pct(before.steps), _eager_pct(after.steps)
    if old is None or new is None or round(old) == round(new):
        return words
    graphs = f"{old:.0f} -> {new:.0f} % of them without a CUDA graph"
    return f"{words}; {graphs}" if words else graphs


def _eager_pct(steps: Sequence[Line]) -> float | None:
    """The share of decode steps that ran eagerly; None: the log does not say."""
    decodes = [step for step in steps if step["mode"] == "decode"]
    if not decodes or any("padded_rows" not in step for step in decodes):
        return None
    return 100 * sum(not step["padded_rows"] for step in decodes) / len(decodes)


def _of_scenarios(before: RunPool, after: RunPool) -> str:
    """What step times follow from, where the run after is a scenario."""
    if before.times():
        return "as the scenario's step times have it"
    old, new = before.scenario, after.scenario
    words = changed_words(old, new, ("model", "hardware", "latency"))
    words += ["the host's times"] if old.host != new.host else []
    return ", ".join(words) or "as they follow from the other settings"


def _ratio_words(before: RunPool, after: RunPool, *, prefills: bool) -> str:
    """The median, over AFTER's steps, of their time by what BEFORE would have needed."""
    medians = []
    for number, new in enumerate(after.times()):
        old = before.setup.prefill(number)
        ratios = [
            new.device_of(number) / max(old.device_ns(step), 1)
            for number, step in new.steps_of(prefills=prefills)
        ]
        medians += [float(np.median(ratios))] if ratios else []
    if not after.times():
        return _of_scenarios(before, after)
    return f"{_of_servers(medians, '.2f')} times as long (median)" if medians else ""


def gap_words(before: RunPool, after: RunPool) -> str:
    """How much longer the host takes between two steps."""
    medians = []
    for number, new in enumerate(after.times()):
        old = before.setup.gaps(number)
        more_ns = [
            new.host_of(number) - old.host_ns(step)
            for prefills in (True, False)
            for number, step in new.steps_of(prefills=prefills)
        ]
        medians.append(float(np.median(more_ns)) / NS_PER_MS)
    if not medians:
        return _of_scenarios(before, after)
    return f"the host takes {_of_servers(medians, '+.2f')} ms (median)"


def _of_servers(values: Sequence[float], form: str) -> str:
    """A value of each server; of many servers the least and the greatest."""
    if len(values) > _MOST_SERVERS:
        return f"{min(values):{form}} to {max(values):{form}}"
    return ", ".join(f"{value:{form}}" for value in values)
