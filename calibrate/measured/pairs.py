"""Measured and simulated requests, paired by name; those without a pair are listed."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.core.errors import InputError
from sim.core.request import Status
from sim.core.units import NS_PER_MS
from sim.runlog import NOT_YET_NS, RequestColumns
from sim.runlog.run_log_file import MeasuredRun


@dataclass(frozen=True, slots=True)
class Selection:
    """Which requests are judged, by arrival: the first ones, all but the first ones, or all."""

    first: int | None = None
    skip: int | None = None

    def rows(self, measured: MeasuredRun) -> range:
        """The indices of the selected requests; the run is in order of arrival.

        Raises:
            InputError: both options are given, or the run has too few requests.
        """
        if self.first is not None and self.skip is not None:
            raise InputError("--first and --skip: give one of the two")
        rows = range(len(measured))
        if self.first is not None and self.first > len(rows):
            raise InputError(f"--first {self.first}: the run has {len(rows)} requests")
        if self.skip is not None and self.skip >= len(rows):
            raise InputError(f"--skip {self.skip}: leaves none of the run's {len(rows)} requests")
        return rows[self.skip : self.first]

    def __str__(self) -> str:
        if self.first is not None:
            return f"the first {self.first:,} by arrival"
        return "all" if self.skip is None else f"all but the first {self.skip:,} by arrival"


@dataclass(frozen=True, slots=True)
class Times:
    """Times and token counts of requests; arrays of one length.

    Times are ns since the run's start; a `first_token_ns` that is not known is NOT_YET_NS.
    """

    arrival_ns: Int64
    first_token_ns: Int64
    finish_ns: Int64
    prompt_tokens: Int64
    output_tokens: Int64

    def latencies_ms(self) -> dict[str, Float64]:
        """`ttft`, `tpot` and `latency` of each request; the first two NaN without a first token.

        TTFT = first token - arrival, TPOT = (finish - first token) / max(1, output tokens - 1),
        latency = finish - arrival. So a request of one token has a TPOT of about 0.
        """
        known = self.first_token_ns != NOT_YET_NS
        ttft = np.where(known, (self.first_token_ns - self.arrival_ns) / NS_PER_MS, np.nan)
        return {
            "ttft": ttft,
            "tpot": self.decode_ms() / np.maximum(1, self.output_tokens - 1),
            "latency": (self.finish_ns - self.arrival_ns) / NS_PER_MS,
        }

    def decode_ms(self) -> Float64:
        """Time from the first token to the last; NaN if the first token's time is not known."""
        known = self.first_token_ns != NOT_YET_NS
        return np.where(known, (self.finish_ns - self.first_token_ns) / NS_PER_MS, np.nan)


@dataclass(frozen=True, slots=True)
class MeasuredPairs:
    """The judged requests that finished in both runs, as pairs, and those that did not.

    Attributes:
        rid: names of the pairs, by measured arrival.
        measured, simulated: their times.
        num_judged: measured requests that were selected.
        only_measured: selected requests that the simulation does not have.
        only_simulated: requests of the simulation that were not measured at all.
        failed_measured: selected requests that did not finish in the measured run.
        failed_simulated: selected requests that did not finish in the simulation, with their
            status.
    """

    rid: list[str]
    measured: Times
    simulated: Times
    num_judged: int
    only_measured: list[str]
    only_simulated: list[str]
    failed_measured: list[str]
    failed_simulated: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.rid)

    def differing(self, name: str) -> dict[str, tuple[int, int]]:
        """Measured and simulated counts of those pairs in which they differ.

        Args:
            name: `prompt_tokens` or `output_tokens`.
        """
        ours, theirs = getattr(self.measured, name), getattr(self.simulated, name)
        rows = np.flatnonzero(ours != theirs).tolist()
        return {self.rid[row]: (int(ours[row]), int(theirs[row])) for row in rows}


def join(measured: MeasuredRun, simulated: RequestColumns, selection: Selection) -> MeasuredPairs:
    """Pair the selected requests with the simulation's requests of the same names.

    Raises:
        InputError: the selection does not fit the run.
    """
    rows = selection.rows(measured)
    row_of = {rid: row for row, rid in enumerate(simulated.rid)}
    known = set(measured.rid)
    names = [measured.rid[row] for row in rows]
    status = {rid: simulated.status[row_of[rid]] for rid in names if rid in row_of}
    failed = {rid: word for rid, word in status.items() if word != Status.FINISHED.value}
    unfinished = [measured.rid[row] for row in rows if measured.finish_ns[row] == NOT_YET_NS]
    out = {*unfinished, *failed}
    ours = [row for row in rows if measured.rid[row] in status and measured.rid[row] not in out]
    paired = [measured.rid[row] for row in ours]
    return MeasuredPairs(
        rid=paired,
        measured=_times(measured, ours),
        simulated=_times(simulated, [row_of[rid] for rid in paired]),
        num_judged=len(rows),
        only_measured=[rid for rid in names if rid not in row_of],
        only_simulated=[rid for rid in simulated.rid if rid not in known],
        failed_measured=unfinished,
        failed_simulated=failed,
    )


def _times(run: MeasuredRun | RequestColumns, rows: list[int]) -> Times:
    return Times(
        run.arrival_ns[rows],
        run.first_token_ns[rows],
        run.finish_ns[rows],
        run.prompt_tokens[rows],
        run.output_tokens[rows],
    )
