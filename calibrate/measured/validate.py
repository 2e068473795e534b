"""Compares a scenario's simulation with a measured run, for `calibrate validate SCENARIO`."""

from collections.abc import Iterator
from dataclasses import dataclass

from calibrate.measured.compare import TOGETHER, RunComparison, compare
from calibrate.measured.over_time import OverTime, Samples, compare_over_time
from calibrate.measured.pairs import Selection, join
from calibrate.measured.twin import Twin
from sim.runlog import RunLog
from sim.runlog.run_log_file import MeasuredRun

# Smaller differences of arrivals come from rounding.
_SAME_ARRIVAL_MS = 0.5


@dataclass(frozen=True, slots=True)
class MeasuredValidation:
    """A simulation against a measured run.

    Attributes:
        scenario: its name.
        scenario_hash: of its content.
        selection: which requests are judged.
        num_measured, num_simulated: number of all requests of each run.
        comparison: of the judged requests.
        over_time: numbers of running and waiting requests over time, judged or not; None: no
            samples were given.
        remarks: remarks for the reader, one line each.
    """

    scenario: str
    scenario_hash: str
    selection: Selection
    num_measured: int
    num_simulated: int
    comparison: RunComparison
    over_time: OverTime | None
    remarks: tuple[str, ...]


def validate_measured(
    twin: Twin, measured: MeasuredRun, selection: Selection, samples: Samples | None = None
) -> MeasuredValidation:
    """Simulate the whole workload and compare what was selected of it.

    Raises:
        InputError: the scenario is bad, the selection does not fit, or no request can be compared.
    """
    selection.rows(measured)
    log = twin.run()
    comparison = compare(join(measured, log.requests, selection))
    over_time = None
    if samples is not None:
        over_time = compare_over_time(
            samples,
            log,
            shift_ns=comparison.arrivals.shift_ns,
            end_ns=int(measured.finish_ns.max()),
        )
    return MeasuredValidation(
        scenario=twin.loaded.scenario.name,
        scenario_hash=twin.loaded.content_hash,
        selection=selection,
        num_measured=len(measured),
        num_simulated=len(log.requests.rid),
        comparison=comparison,
        over_time=over_time,
        remarks=tuple(_remarks(log, comparison, over_time)),
    )


def _remarks(log: RunLog, comparison: RunComparison, over_time: OverTime | None) -> Iterator[str]:
    spread_ms = comparison.arrivals.spread_ms
    if spread_ms > _SAME_ARRIVAL_MS:
        yield (
            f"requests arrive up to {spread_ms:.3g} ms off their measured arrivals"
            " (--measured-arrivals uses the measured ones)"
        )
    for name, errors in comparison.latencies.items():
        if unknown := len(comparison.pairs) - errors.num_requests:
            yield f"{name}: compared requests without a first token, left out: {unknown}"
        if errors.num_left_out:
            why = "for which 0 was measured"
            if name == "tpot":
                why = f"whose tokens came together (below {TOGETHER:.0%} of the median)"
            yield (
                f"{name}: requests {why}, left out of the mean error of a request:"
                f" {errors.num_left_out}"
            )
    if over_time is not None and over_time.num_left_out:
        yield f"samples after the end of both runs, left out: {over_time.num_left_out}"
    for key in ("latency_source", "left_range"):
        if key in log.meta:
            yield str(log.meta[key])
