"""The results of a contest as tables: all contestants at a load, and the card of each."""

from collections.abc import Iterator

from sim.contest.compare import Difference
from sim.contest.measures import BY_NAME, MEASURES, Measure
from sim.contest.results import ContestCell, ContestResults, Overall
from sim.contest.suite import SuiteTraffic
from sim.metrics.points import MIN_RUNS, MeanInterval
from sim.report.confidence_text import confidence_lines
from sim.scenario.schema import SloSection
from sim.tables.table import UNDEFINED, Column, Table, columns_of, counted, number

# What the table of all contestants has.
_OVERVIEW = ("slo_attainment", "p99_ttft_ms", "p99_tpot_ms", "cache_hit_rate_pct", "max_wait_ms")
MARKS = {"better": " ▲", "worse": " ▼", "same": " =", "none shown": ""}
MARKS_IN_WORDS = (
    "▲ better and ▼ worse than the reference: the chance that even one mark of a measure is wrong"
    " is at most 5 % (paired by seed, Student's t, Holm's correction). Without a mark no difference"
    " is shown; with = all runs are alike."
)
INTERVALS_IN_WORDS = (
    "Each interval is a 95 % interval for itself. A mark allows for all comparisons of its measure,"
    " so an interval without zero may have none."
)


def overview_lines(results: ContestResults) -> Iterator[str]:
    """What the contest was, above its table."""
    contest, num_seeds = results.contest, len(results.contest.seeds)
    yield (
        f"{contest.base.scenario.name}: {counted(len(contest.section.contestants), 'contestant')},"
        f" {counted(len(results.traffic), 'kind')} of traffic,"
        f" {counted(len(results.loads), 'load')}, {counted(num_seeds, 'seed')};"
        f" reference: {results.reference}"
    )
    yield slo_line(contest.base.scenario.slo)
    yield from confidence_lines(results.confidence)
    if num_seeds < MIN_RUNS:
        yield f"no difference can be shown with fewer than {MIN_RUNS} seeds"
    for name, reason in failure_lines(results):
        yield f"{name} is out of the contest: {reason}"


def slo_line(slo: SloSection) -> str:
    """`SLO: TTFT at most 2,000 ms, TPOT at most 100 ms`."""
    limits = {"TTFT": slo.ttft_ms, "TPOT": slo.tpot_ms, "end-to-end latency": slo.e2e_latency_ms}
    texts = (f"{name} at most {most:,g} ms" for name, most in limits.items() if most is not None)
    return f"SLO: {', '.join(texts)}"


def failure_lines(results: ContestResults) -> Iterator[tuple[str, str]]:
    """Each contestant that is out, and why."""
    for name, (cell, outcome) in results.failures.items():
        where = f"traffic {cell.traffic}, {load_in_words(cell.load)}"
        yield name, f"{outcome.message} ({where})"


def load_in_words(load: float) -> str:
    """`0.6 of the capacity`."""
    return f"{load:g} of the capacity"


def overview_table(results: ContestResults, load: float) -> Table:
    """Each contestant against the reference, over all traffic at a load."""
    measures = [BY_NAME[name] for name in _OVERVIEW]
    rows = [
        [
            name,
            *(
                difference_text(each, results.overall(each)[Overall(name, load)])
                for each in measures
            ),
            *_num_verdicts(results, name, BY_NAME[_OVERVIEW[0]], load),
        ]
        for name in results.challengers
    ]
    headings = [*map(difference_heading, measures), "kinds better", "kinds worse"]
    columns = columns_of(["contestant"], headings)
    kinds = counted(len(results.traffic), "kind")
    note = f"{MARKS_IN_WORDS} Kinds: of the {kinds} of traffic, where SLO met is better or worse."
    title = f"Mean differences from {results.reference} over all traffic, at {load_in_words(load)}"
    return Table(columns, rows, title, note)


def _num_verdicts(results: ContestResults, name: str, measure: Measure, load: float) -> list[str]:
    found = [
        results.differences(measure)[ContestCell(name, traffic.name, load)].verdict(measure.better)
        for traffic in results.traffic
    ]
    return [str(found.count(verdict)) for verdict in ("better", "worse")]


def difference_heading(measure: Measure) -> str:
    """What a column of differences is called."""
    return f"{measure.label} {measure.difference_unit}".rstrip()


def difference_text(measure: Measure, found: Difference, *, interval: bool = False) -> str:
    """`-12.3 ▲`, or with the interval `-12.3 (-15.0 to -9.6) ▲`."""
    verdict = found.verdict(measure.better)
    if found.mean is None or verdict == "same":
        return UNDEFINED if found.mean is None else MARKS[verdict].strip()
    ends = ""
    if interval and found.low is not None and found.high is not None:
        ends = f" ({_signed(found.low)} to {_signed(found.high)})"
    return f"{_signed(found.mean)}{ends}{MARKS[verdict]}"


def _signed(value: float) -> str:
    text = number(abs(value))
    sign = "+" if value > 0 else "-"
    return f"{sign}{text}" if any(digit in text for digit in "123456789") else text


def card_table(results: ContestResults, name: str) -> Table:
    """A contestant's card: its differences over all traffic, with 95 % intervals, at each load."""
    rows = []
    for measure in MEASURES:
        found = [results.overall(measure)[Overall(name, load)] for load in results.loads]
        texts = [difference_text(measure, each, interval=True) for each in found]
        rows.append([measure.label, measure.difference_unit, *texts])
    columns = columns_of(["", "unit"], _at(results))
    title = f"{name} against {results.reference}: mean differences over all traffic"
    return Table(columns, rows, title, f"{MARKS_IN_WORDS} {INTERVALS_IN_WORDS}")


def traffic_card(results: ContestResults, name: str) -> Table:
    """How a contestant's goodput differs under each traffic, marked or not, at each load."""
    measure = BY_NAME["request_goodput"]
    found = results.differences(measure)
    rows = [
        [
            traffic.name,
            *(
                difference_text(
                    measure, found[ContestCell(name, traffic.name, load)], interval=True
                )
                for load in results.loads
            ),
        ]
        for traffic in results.traffic
    ]
    columns = columns_of([f"goodput {measure.difference_unit}"], _at(results))
    title = f"{name} against {results.reference}: goodput under each kind of traffic"
    return Table(columns, rows, title, f"{MARKS_IN_WORDS} {INTERVALS_IN_WORDS}")


def _at(results: ContestResults) -> list[str]:
    return [f"at {load:g}" for load in results.loads]


def where_lines(results: ContestResults, name: str) -> Iterator[str]:
    """Where a contestant is better, and where it is worse: one line for each measure."""
    for verdict in ("better", "worse"):
        lines = [
            f"{measure.label}: {places}"
            for measure in MEASURES
            if (places := _places(results, name, measure, verdict))
        ]
        yield f"{verdict.capitalize()}: {'; '.join(lines) or 'nowhere shown'}."


def _places(results: ContestResults, name: str, measure: Measure, verdict: str) -> str:
    """`chat at 1 (-12.3 %), 1.4 (-30.1 %), agents at 1 (-5.2 %)`."""
    found = results.differences(measure)
    places = []
    for traffic in results.traffic:
        at = [
            f"{load:g} ({_amount(measure, one)})"
            for load in results.loads
            if (one := found[ContestCell(name, traffic.name, load)]).verdict(measure.better)
            == verdict
        ]
        if at:
            places.append(f"{traffic.name} at {', '.join(at)}")
    return ", ".join(places)


def _amount(measure: Measure, found: Difference) -> str:
    return f"{_signed(found.mean or 0.0)} {measure.difference_unit}".rstrip()


def values_table(results: ContestResults, traffic: SuiteTraffic, load: float) -> Table:
    """The values themselves: means over the seeds, of each contestant."""
    rows = [
        [
            name,
            *(results.interval(ContestCell(name, traffic.name, load), each) for each in MEASURES),
        ]
        for name in results.contestants
    ]
    columns = [
        *columns_of(["contestant"]),
        *(Column(each.heading, to_text=_mean_text) for each in MEASURES),
    ]
    return Table(columns, rows, f"{traffic.name}, at {load_in_words(load)}")


def _mean_text(interval: MeanInterval) -> str:
    return number(interval.mean)


def traffic_table(results: ContestResults) -> Table:
    """The traffic, and what the reference bears of it."""
    found = [(traffic, results.capacities[traffic.name]) for traffic in results.traffic]
    rows = [
        [
            traffic.name,
            traffic.about or "from the scenario's file",
            *map(number, (capacity.rate_rps, capacity.sessions_per_s, 100 * capacity.attainment)),
        ]
        for traffic, capacity in found
    ]
    note = (
        f"Capacity: the largest rate, in steps of 5 %, at which {results.reference} keeps the SLO"
        f" for {100 * results.contest.section.min_slo_attainment:g} % of requests."
    )
    if any(capacity.sessions_per_s is not None for _, capacity in found):
        note += (
            " Of traffic in sessions a load is a share of the rate at which they begin: a session"
            " waits for each answer, so too many of them do not send more requests a second, but"
            " ever more are under way."
        )
    columns = [*columns_of(["traffic", "what it is"]), *columns_of(numbers=[
        "capacity requests/s", "capacity sessions/s", "SLO met there %",
    ])]  # fmt: skip
    return Table(columns, rows, "The traffic", note)
