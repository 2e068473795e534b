"""Finds the statistics of traffic whose requests have times."""

from dataclasses import dataclass

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.core.errors import InputError
from sim.core.units import NS_PER_S
from sim.workload.fitted.statistics import FORMAT, Cell, TrafficStatistics
from sim.workload.reuse.blocks import block_size_of, num_generated
from sim.workload.reuse.infinite_cache import block_keys
from sim.workload.workload import Workload

# The fewest requests whose lengths make a level: a level is their mean, and so no request's own
# length. In levels of pauses, a long pause counts as several.
_LEAST_OF_LEVEL = 5
_MAX_LEVELS = 100
_LEAST_OF_CELL = 40
_FRESH_SHARE = 0.05
# A trace has few requests after long pauses, so these count more; none as more than ten.
_MOST_WEIGHT = 10.0
_ROOT = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRequests:
    """Requests in order of arrival, and what each shares with those before it.

    Attributes:
        shared_blocks: full blocks at the beginning of the prompt that an earlier prompt has.
        run_share: the share of these that were last used by the same request as the last of them.
        pause_s: time since the last of them was last used; 0 if there are none.
    """

    block_size: int
    arrival_s: Float64
    input_tokens: Int64
    output_tokens: Int64
    shared_blocks: Int64
    run_share: Float64
    pause_s: Float64


def shared_requests(workload: Workload, block_size: int | None = None) -> SharedRequests:
    """Find what the requests share, in one pass; `block_size` None: the trace's, or 16 tokens.

    Raises:
        InputError: requests wait for answers, so they have no times; or there are fewer than two.
    """
    if workload.clients or workload.phases:
        raise InputError("--fit: needs requests with times; these wait for answers")
    nodes: dict[tuple[int, object], int] = {}
    # The request that used each node last; node 0 is the beginning of all prompts.
    users, arrivals_ns = [0], list[int]()
    rows: list[tuple[int, int, int, int, int]] = []
    for number, request in enumerate(workload.arrivals()):
        spec = request.spec
        prompt = spec.prompt
        if block_size is None:
            block_size = block_size_of(prompt)
        node, before = _ROOT, list[int]()
        for key in block_keys(prompt, block_size)[: len(prompt) // block_size]:
            node = nodes.setdefault((node, key), len(users))
            if node == len(users):
                users.append(number)
            else:
                before.append(users[node])
                users[node] = number
        arrivals_ns.append(spec.arrival_ns)
        source = before[-1] if before else number
        # What was used last by one request is together, as each use is of a prompt's beginning.
        run_blocks = before.count(source)
        rows.append((len(prompt), num_generated(request), len(before), run_blocks, source))
    if block_size is None or len(rows) < 2:
        raise InputError("--fit: needs two requests or more")
    inputs, outputs, shared_blocks, runs, sources = np.array(rows, dtype=np.int64).T
    arrival_ns = np.array(arrivals_ns, dtype=np.int64)
    return SharedRequests(
        block_size=block_size,
        arrival_s=(arrival_ns - arrival_ns[0]) / NS_PER_S,
        input_tokens=inputs,
        output_tokens=outputs,
        shared_blocks=shared_blocks,
        run_share=runs / np.maximum(1, shared_blocks),
        pause_s=(arrival_ns - arrival_ns[sources]) / NS_PER_S,
    )


def fit(requests: SharedRequests) -> TrafficStatistics:
    """The statistics of these requests."""
    # A pause can be seen only in requests that come later than the pause is long.
    num = len(requests.arrival_s)
    num_later = num - np.searchsorted(requests.arrival_s, requests.pause_s)
    weights = np.minimum(num / np.maximum(num_later, 1), _MOST_WEIGHT) / num
    groups, num_fresh = _groups(requests.shared_blocks)
    shares = np.array([weights[group].sum() for group in groups])
    # The weights add up to more than 1, so the fresh cells get what the others leave.
    shares[num_fresh:] /= max(1.0, shares[num_fresh:].sum())
    shares[:num_fresh] *= (1 - shares[num_fresh:].sum()) / shares[:num_fresh].sum()
    return TrafficStatistics(
        format=FORMAT,
        block_size=requests.block_size,
        num_requests=num,
        gaps_s=_levels(np.diff(requests.arrival_s)),
        cells=tuple(
            _cell(requests, group, weights[group], share, is_fresh=place < num_fresh)
            for place, (group, share) in enumerate(zip(groups, shares.tolist(), strict=True))
        ),
    )


def _groups(shared_blocks: Int64) -> tuple[list[Int64], int]:
    """The rows of each cell: those that share about as much, to a factor of 1.4 or more.

    Returns:
        The cells, and how many of the first are fresh: those that share least, together a twentieth
        of the requests or more.
    """
    kind = np.ceil(2 * np.log2(np.maximum(shared_blocks, 0.5))).astype(np.int64)
    order = np.argsort(kind, kind="stable")
    groups: list[Int64] = []
    for rows in np.split(order, np.flatnonzero(np.diff(kind[order])) + 1):
        if groups and min(len(groups[-1]), len(rows)) < _LEAST_OF_CELL:
            groups[-1] = np.concatenate((groups[-1], rows))
        else:
            groups.append(rows)
    ends = np.cumsum([len(group) for group in groups])
    return groups, 1 + int(np.searchsorted(ends, _FRESH_SHARE * len(order)))


def _cell(
    requests: SharedRequests, rows: Int64, weights: Float64, share: float, *, is_fresh: bool
) -> Cell:
    shared = requests.shared_blocks[rows]
    return Cell(
        share=min(1.0, max(0.0, share)),
        is_fresh=is_fresh,
        shared_blocks=_levels(shared),
        run_share=_levels(requests.run_share[rows]),
        pause_s=_levels(requests.pause_s[rows], weights),
        new_tokens=_levels(requests.input_tokens[rows] - shared * requests.block_size),
        output_tokens=_levels(requests.output_tokens[rows]),
    )


def _levels(values: Float64 | Int64, weights: Float64 | None = None) -> tuple[float, ...]:
    """The values as equally frequent levels, each the mean of several values that are alike."""
    num_levels = int(np.clip(len(values) // _LEAST_OF_LEVEL, 1, _MAX_LEVELS))
    order = np.argsort(values, kind="stable")
    weight = np.ones(len(values)) if weights is None else weights[order]
    shares = np.append(0.0, np.cumsum(weight)) / weight.sum()
    sums = np.append(0.0, np.cumsum(weight * values[order])) / weight.sum()
    edges = np.linspace(0, 1, num_levels + 1)
    return tuple(np.round(np.diff(np.interp(edges, shares, sums)) * num_levels, 4).tolist())
