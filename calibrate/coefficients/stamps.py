"""The times of requests that a fit compares, and their layout in one vector.

For each run: the TTFT and the decode time of each request, then the mean TTFT and the mean TPOT of
each block of requests that arrived one after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrate.measured.pairs import MeasuredPairs
from sim.core.arrays import Bools, Float64, Int64
from sim.core.errors import InputError
from sim.runlog import NOT_YET_NS

_FEWEST = 10
# About how many requests belong to a block.
_PER_BLOCK = 4
_MOST_BLOCKS = 25
_NUM_KINDS = 4
# Kinds of times whose residuals scatter less than this count alike, and so do those beyond.
_LEAST_SCATTER, _MOST_SCATTER = 0.01, 0.03


@dataclass(frozen=True, slots=True)
class Rows:
    """What belongs to each element of the vector; arrays of one length.

    Attributes:
        count: the requests that it stands for.
        block: the block of requests that it comes from; of all runs together.
        kind: which of the four kinds it is.
    """

    count: Float64
    block: Int64
    kind: Int64

    @property
    def is_decode_time(self) -> Bools:
        """Whether an element is the decode time of one request."""
        found: Bools = self.kind == 1
        return found

    def weight(self, residuals: Float64) -> Float64:
        """How much each residual counts: those of a kind that scatters less count more."""
        scatter = np.array([
            1.5 * np.median(np.abs(residuals[self.kind == kind])) for kind in range(_NUM_KINDS)
        ])  # fmt: skip
        scatter = np.clip(scatter, _LEAST_SCATTER, _MOST_SCATTER)
        weight: Float64 = self.count / scatter[self.kind] ** 2
        weight /= weight.mean()
        return weight


@dataclass(frozen=True, slots=True)
class Stamps:
    """What was measured of the requests that the fit sees, and that finished.

    Attributes:
        rid: their names, by arrival.
        ttft_ms, decode_ms: to the first token, and from the first to the last.
        gaps: inter-token gaps: output tokens less 1, at least 1.
        has_first, decodes: whether these two times are known, and not 0.
        block: the block of requests that each belongs to; from 0.
    """

    rid: list[str]
    ttft_ms: Float64
    decode_ms: Float64
    gaps: Int64
    has_first: Bools
    decodes: Bools
    block: Int64

    @property
    def num_blocks(self) -> int:
        return int(self.block[-1]) + 1

    def measured(self) -> Float64:
        return self.vector(self.ttft_ms, self.decode_ms)

    def vector(self, ttft_ms: Float64, decode_ms: Float64) -> Float64:
        """The vector of these times of the requests."""
        tpot_ms = decode_ms / self.gaps
        some, more = self.has_first, self.decodes
        return np.concatenate((
            ttft_ms[some], decode_ms[more], self._means(ttft_ms, some), self._means(tpot_ms, more),
        ))  # fmt: skip

    def offset(self, step_ms: float) -> Float64:
        """How exact each element can be: a request arrives at some moment of a step."""
        lengths = [len(block) for block in self.blocks()]
        return np.repeat([step_ms, step_ms, step_ms, 0.0], lengths)

    def blocks(self) -> list[Int64]:
        """The block of each element, for each of the four kinds."""
        single = [self.block[self.has_first], self.block[self.decodes]]
        return [*single, *(np.unique(block) for block in single)]

    def counts(self) -> list[Float64]:
        single = [self.block[self.has_first], self.block[self.decodes]]
        means = [np.unique(block, return_counts=True)[1].astype(np.float64) for block in single]
        return [*(np.ones(len(block)) for block in single), *means]

    def _means(self, times_ms: Float64, rows: Bools) -> Float64:
        count = np.bincount(self.block[rows], minlength=self.num_blocks)
        total = np.bincount(self.block[rows], times_ms[rows], minlength=self.num_blocks)
        means: Float64 = total[count > 0] / count[count > 0]
        return means


def check_stamps(
    name: str, first_token_ns: Int64, finish_ns: Int64, output_tokens: Int64
) -> tuple[Bools, Bools]:
    """Whether each request has a first token, and whether it decoded.

    Raises:
        InputError: too few requests have the stamps of a first and a last token.
    """
    has_first = first_token_ns != NOT_YET_NS
    if not has_first.any():
        raise InputError(f"{name}: has no times of first tokens: measure again with streaming on")
    decodes = has_first & (output_tokens > 1) & (finish_ns > first_token_ns)
    if (num_decoded := int(decodes.sum())) < _FEWEST:
        raise InputError(
            f"{name}: {num_decoded} of the first {len(has_first)} requests finished with two tokens"
            f" or more; at least {_FEWEST} are needed"
        )
    return has_first, decodes


def stamps_of(name: str, pairs: MeasuredPairs) -> Stamps:
    """Raises InputError as `check_stamps`."""
    times = pairs.measured
    has_first, decodes = check_stamps(
        name, times.first_token_ns, times.finish_ns, times.output_tokens
    )
    gaps = times.output_tokens - 1
    num_blocks = max(1, min(_MOST_BLOCKS, len(pairs) // _PER_BLOCK))
    return Stamps(
        rid=pairs.rid,
        ttft_ms=times.latencies_ms()["ttft"],
        decode_ms=times.decode_ms(),
        gaps=np.maximum(gaps, 1),
        has_first=has_first,
        decodes=decodes,
        block=np.arange(len(pairs), dtype=np.int64) * num_blocks // len(pairs),
    )


def rows_of(stamps: Sequence[Stamps]) -> Rows:
    """What belongs to the elements of the vectors of all runs, one after the other."""
    blocks: list[Int64] = []
    counts: list[Float64] = []
    before = 0
    for each in stamps:
        blocks += [block + before for block in each.blocks()]
        counts += each.counts()
        before += each.num_blocks
    kinds = [np.full(len(block), place % _NUM_KINDS) for place, block in enumerate(blocks)]
    return Rows(np.concatenate(counts), np.concatenate(blocks), np.concatenate(kinds))
