"""Requests of the form that a server's `/metrics` tells: when they came, and how long they are.

Certain are how many arrived between two scrapes, the mean lengths, and the share of prompt tokens
that the prefix cache held. Not certain are the times between two scrapes, which are drawn, the
single lengths, and which prefixes requests share: here all share one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sim.core.arrays import Int64
from sim.core.batch import OutputScript
from sim.core.request import RequestSpec
from sim.core.tokens import SegmentPrompt
from sim.server_metrics.scrape import Histogram
from sim.server_metrics.window import Window, joined
from sim.workload import MAX_TOKENS
from sim.workload.workload import ScriptedRequest, Workload, every_request, listed

_NS_PER_US = 1_000
# Streams of tokens: of the shared prefix, and where those of the requests begin.
_SHARED_SEED, _FIRST_SEED = 1, 10
# A scenario's first requests say how its lengths are spread.
_MAX_OWN = 5_000


class Lengths(NamedTuple):
    """Lengths of a scenario's own requests, row by row."""

    prompt: Int64
    output: Int64

    @classmethod
    def of(cls, workload: Workload) -> "Lengths":
        rows = [
            (len(request.spec.prompt), min(request.script.num_tokens, request.spec.max_new_tokens))
            for request, _ in zip(every_request(workload), range(_MAX_OWN), strict=False)
        ]
        prompt, output = np.array(rows, dtype=np.int64).T
        return cls(prompt, output)


def span_traffic(windows: Sequence[Window], own: Lengths, rng: np.random.Generator) -> Workload:
    """Requests from the beginning of the first window to the end of the last.

    Those that the server had at the beginning come first, at time 0: the ones that ran have a part
    of their output left.
    """
    span = joined(windows)
    begin_us = span.first.at_us
    num_ran, num_waited = num_before(span)
    at_ns = [np.zeros(num_ran + num_waited)]
    for each in span.arrived:
        bounds = (each.begin_us - begin_us, each.end_us - begin_us)
        at_ns.append(rng.uniform(*bounds, each.num) * _NS_PER_US)
    arrival_ns = np.sort(np.concatenate(at_ns).astype(np.int64))
    prompts, outputs = _lengths(span, own, rng, len(arrival_ns))
    left = np.ceil(outputs[:num_ran] * rng.uniform(0, 1, num_ran))
    outputs[:num_ran] = np.maximum(left, 1).astype(np.int64)
    shared = np.minimum(np.floor(prompts * span.hit_rate), prompts - 1).astype(np.int64)
    return listed([
        _request(row, *numbers)
        for row, numbers in enumerate(
            zip(arrival_ns.tolist(), prompts.tolist(), outputs.tolist(), shared.tolist(),
                strict=True)
        )
    ])  # fmt: skip


def num_before(window: Window) -> tuple[int, int]:
    """How many requests ran, and how many waited, when a window began."""
    ran, waited = (max(0, round(window.first.values[key])) for key in ("running", "waiting"))
    return ran, waited


def _request(row: int, arrival_ns: int, prompt: int, output: int, shared: int) -> ScriptedRequest:
    seed = _FIRST_SEED + 2 * row
    parts = ((_SHARED_SEED, shared), (seed, prompt - shared))
    spec = RequestSpec(
        rid=str(row),
        arrival_ns=arrival_ns,
        prompt=SegmentPrompt(parts if shared else parts[1:]),
        max_new_tokens=output,
        ignore_eos=True,
    )
    return ScriptedRequest(spec, OutputScript(output, seed + 1))


def _lengths(span: Window, own: Lengths, rng: np.random.Generator, num: int) -> tuple[Int64, Int64]:
    """Prompt and output lengths with the measured means.

    They are drawn from the server's histograms; without those, from the scenario's requests.
    """
    rows = rng.integers(0, len(own.prompt), num)
    found = []
    for name, counter, lengths in (
        ("prompt_lengths", "prompt_tokens", own.prompt),
        ("output_lengths", "generation_tokens", own.output),
    ):
        histogram = span.histograms.get(name)
        if histogram is not None and max(histogram.counts) > 0:
            drawn, drawn_mean = _drawn(histogram, rng, num)
        else:
            drawn, drawn_mean = lengths[rows].astype(np.float64), float(lengths.mean())
        mean = span.mean_tokens(name, counter) or drawn_mean
        scaled = np.rint(drawn * mean / drawn_mean)
        found.append(np.clip(scaled, 1, MAX_TOKENS).astype(np.int64))
    return found[0], found[1]


def _drawn(
    histogram: Histogram, rng: np.random.Generator, num: int
) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], float]:
    """Lengths evenly from the buckets, and their expected mean; the last is one bound wide."""
    highs = np.array(histogram.bounds)
    lows = np.concatenate(([0.0], highs[:-1]))
    highs[-1] = 2 * max(lows[-1], 1.0)
    counts = np.diff(np.array(histogram.counts), prepend=0.0).clip(0)
    shares = counts / counts.sum()
    bucket = rng.choice(len(shares), num, p=shares)
    drawn = rng.uniform(lows[bucket], highs[bucket])
    return drawn, float(shares @ (lows + highs) / 2)
