"""Reconstructs when a benchmark's client sent its requests, for results without start times.

Both clients (SGLang 0.5.23 `sglang.benchmark.serving`, vLLM 0.19.0 `vllm bench serve`) start a task
for each request: all tasks at once if `request_rate` is infinite, else with random gaps. Each task
waits for one of `max_concurrency` slots, first come first served.
"""

from collections.abc import Sequence
from heapq import heapreplace
from typing import NamedTuple

import numpy as np
from pydantic import ValidationError

from sim.core.errors import InputError
from sim.core.units import NS_PER_S
from sim.workload.arrivals import GammaArrivals, PoissonArrivals, draw_arrivals_ns


class Pacing(NamedTuple):
    """A client's settings for sending.

    Attributes:
        rate_rps: requests per second; infinite: all at once; None: not sent at a rate.
        burstiness: shape of the gamma distribution of the gaps; 1 is Poisson.
        max_concurrency: slots; None: no limit.
    """

    rate_rps: float | None
    burstiness: float = 1.0
    max_concurrency: int | None = None


def sent_ns(
    pacing: Pacing,
    latency_ns: Sequence[int | None],
    *,
    draw_seed: int | None,
    where: str,
) -> tuple[list[int], str]:
    """When each request was sent, and a note that says how that is known.

    If all tasks started at once, the times follow from the slots and the latencies. Random gaps
    are not in the results: gaps that are drawn here have the same distribution, but other values.

    Latencies are in order of sending; that of a request that failed at an unknown time is None.
    Without a `draw_seed`, no gaps are drawn. `where` is the file and line, for errors.
    """
    drawn = pacing.rate_rps != float("inf")
    if drawn and draw_seed is None:
        raise InputError(
            f"{where}: start_times: missing, and requests were sent at random times, which the"
            " file lacks; --draw-arrivals SEED draws times of the same distribution instead"
        )
    if pacing.max_concurrency is not None and None in latency_ns:
        raise InputError(
            f"{where}: start_times: missing, and request {latency_ns.index(None)} failed at an"
            " unknown time, so it is not known which request took its place under max_concurrency"
        )
    asked_ns = _drawn(pacing, len(latency_ns), draw_seed, where) if drawn else [0] * len(latency_ns)
    if pacing.max_concurrency is not None:
        asked_ns = _with_slots(asked_ns, latency_ns, pacing.max_concurrency)
    return asked_ns, _how(pacing, drawn=drawn)


def _drawn(pacing: Pacing, num_requests: int, seed: int | None, where: str) -> list[int]:
    rate_rps = pacing.rate_rps
    if rate_rps is None:
        raise InputError(f"{where}: request_rate: is not a rate, so no arrivals can be drawn")
    arrivals: PoissonArrivals | GammaArrivals
    try:
        arrivals = PoissonArrivals(kind="poisson", rate_rps=rate_rps)
        if pacing.burstiness != 1:
            cv = pacing.burstiness**-0.5
            arrivals = GammaArrivals(kind="gamma", rate_rps=rate_rps, cv=cv)
    except ValidationError:
        reason = "no arrivals can be drawn at such a request_rate and burstiness"
        raise InputError(f"{where}: {reason}") from None
    rng = np.random.default_rng(seed)
    try:
        times = draw_arrivals_ns(arrivals, num_requests, rng, key=("request_rate",))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return [int(time) for time in times - times[0]]


def _with_slots(
    asked_ns: Sequence[int], latency_ns: Sequence[int | None], num_slots: int
) -> list[int]:
    """Send times of requests that ask for a slot at these times, in order, and wait for one."""
    free_ns = [0] * min(num_slots, len(asked_ns))
    sent = []
    for asked, latency in zip(asked_ns, latency_ns, strict=True):
        start = max(asked, free_ns[0])
        heapreplace(free_ns, start + (latency or 0))
        sent.append(start)
    return sent


def _how(pacing: Pacing, *, drawn: bool) -> str:
    if drawn:
        return "arrivals are drawn, not measured: compare distributions, not single requests"
    if pacing.max_concurrency is None:
        return "no start times in the file: all requests were sent at once, at an infinite rate"
    return (
        "no start times in the file: they follow from the latencies, as each of the"
        f" {pacing.max_concurrency} slots was used again as soon as it was free"
    )


def span_text(sent: Sequence[int], latency_ns: Sequence[int | None], duration_s: object) -> str:
    """A note on how long the run takes with reconstructed times, and how long it really took."""
    end_ns = max(start + (latency or 0) for start, latency in zip(sent, latency_ns, strict=True))
    return f"with these times the run takes {end_ns / NS_PER_S:,.2f} s; it took {duration_s} s"
