"""The tables of docs/explanation/published-policies.md: `python -m bench.policies [SCENARIO ...]`.

Runs the sweeps of the scenarios in scenarios/policies, in this process, and puts what comes out
between the marks of the page. Figures are means over the seeds of a sweep.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from bench.page import replaced
from bench.places import REPOSITORY
from bench.results import markdown_table
from sim.commands.running.simulate import simulate_measured
from sim.core.errors import InputError
from sim.core.files import atomic_path
from sim.des.run import RunOptions
from sim.metrics.summary import Summary, summarise
from sim.runlog import RunLog
from sim.scenario.build import build
from sim.scenario.load import load_scenario
from sim.sweep.plan import SEED, Settings, plan_sweep
from sim.user.modules import user_code

SCENARIOS = REPOSITORY / "scenarios" / "policies"
PAGE = REPOSITORY / "docs" / "explanation" / "published-policies.md"
_POLICY = "scheduler.schedule_policy"


class Run(NamedTuple):
    """What a simulation has found."""

    summary: Summary
    log: RunLog


Figure = Callable[[Run], float]


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        header: its first line.
        figure: the value of a run.
        digits: decimal places.
        is_change: shown as a change in % against first come, first served.
    """

    header: str
    figure: Figure
    digits: int = 0
    is_change: bool = False


class Table(NamedTuple):
    """The table of a scenario; `published` are further rows, of what others have measured."""

    columns: Sequence[Column]
    published: Sequence[Sequence[str]] = ()


def metric(path: str, scale: float = 1.0) -> Figure:
    """A metric of the summary by its key path."""

    def figure(run: Run) -> float:
        value: Any = run.summary
        for key in path.split("."):
            value = value[key]
        return scale * float(value)

    return figure


def mean_ttft_s(prefix: str) -> Figure:
    """The mean TTFT of the tenants whose names begin so."""

    def figure(run: Run) -> float:
        tenants: Any = run.summary["tenants"]
        return (
            fmean(tenants[name]["mean_ttft_ms"] for name in tenants if name.startswith(prefix))
            / 1e3
        )

    return figure


def in_time_pct(tenant: str, ttft_s: float) -> Figure:
    """The share of a tenant's requests whose first token came in time."""

    def figure(run: Run) -> float:
        requests = run.log.requests
        mine = np.array(requests.tenant) == tenant
        ttft_ns = (requests.first_token_ns - requests.arrival_ns)[mine]
        return 100 * float(np.mean(ttft_ns <= ttft_s * 1e9))

    return figure


def session_s(percent: float | None = None) -> Figure:
    """A percentile, or the mean, of how long sessions last: from the first request to the end."""

    def figure(run: Run) -> float:
        requests = run.log.requests
        names, session = np.unique(
            [rid.partition("-")[0] for rid in requests.rid], return_inverse=True
        )
        begin_ns = np.full(len(names), np.iinfo(np.int64).max)
        end_ns = np.zeros(len(names), dtype=np.int64)
        np.minimum.at(begin_ns, session, requests.arrival_ns)
        np.maximum.at(end_ns, session, requests.finish_ns)
        times_s = (end_ns - begin_ns) / 1e9
        return float(np.mean(times_s) if percent is None else np.percentile(times_s, percent))

    return figure


def service_gap(until_s: int, every_s: int) -> Figure:
    """The largest difference between the service of two tenants, in thousands of tokens.

    As the authors of VTC measure it: a request's service is its prompt tokens, less those that were
    cached, and twice its output tokens, spread evenly from its first token to its last.
    """

    def figure(run: Run) -> float:
        requests = run.log.requests
        begin_s, end_s = requests.first_token_ns / 1e9, requests.finish_ns / 1e9
        service = requests.prompt_tokens - requests.cached_tokens + 2 * requests.output_tokens
        times_s = np.arange(every_s, until_s + every_s, every_s)[:, np.newaxis]
        shares = np.clip((times_s - begin_s) / np.maximum(end_s - begin_s, 1e-9), 0, 1)
        given, tenants = shares * service, np.array(requests.tenant)
        by_tenant = [given[:, tenants == name].sum(axis=1) for name in set(requests.tenant)]
        return float(np.ptp(by_tenant, axis=0).max()) / 1000

    return figure


TABLES: Mapping[str, Table] = {
    "two-tenants": Table(
        [
            Column("mean TTFT s: 90 a minute", mean_ttft_s("small")),
            Column("180 a minute", mean_ttft_s("large")),
            Column("tokens/s", metric("total_throughput")),
            Column("mean TPOT ms", metric("mean_tpot_ms"), 1),
            Column("difference of service, thousands", service_gap(360, 10), 1),
        ],
        [
            ["measured, fcfs", "", "", "876", "43.7", "156.7"],
            ["measured, vtc", "125", "353", "893", "42.5", "7.9"],
        ],
    ),
    "eight-tenants": Table(
        [
            Column("mean TTFT s: 24 a minute", mean_ttft_s("slow")),
            Column("36 a minute", mean_ttft_s("fast")),
            Column("tokens/s", metric("total_throughput")),
            Column("mean TPOT ms", metric("mean_tpot_ms"), 1),
            Column("difference of service, thousands", service_gap(360, 10), 1),
        ],
        [
            ["measured, fcfs", "257", "255", "875", "41.1", "23.9"],
            ["measured, vtc", "151", "295", "875", "41.2", "3.6"],
        ],
    ),
    "long-and-short": Table(
        [
            Column("mean TTFT ms: short", metric("tenants.short.mean_ttft_ms")),
            Column("long", metric("tenants.long.mean_ttft_ms")),
            Column("longest wait s: short", metric("tenants.short.max_wait_ms", 1e-3), 1),
            Column("long", metric("tenants.long.max_wait_ms", 1e-3), 1),
            Column("% in time: short", in_time_pct("short", 0.5)),
            Column("long", in_time_pct("long", 10)),
        ]
    ),
    "all-at-once": Table(
        [
            Column("median latency s", metric("median_e2e_latency_ms", 1e-3), 1),
            Column("change %", metric("median_e2e_latency_ms"), 1, is_change=True),
            Column("tokens/s", metric("output_throughput")),
            Column("mean TPOT ms", metric("mean_tpot_ms"), 1),
        ],
        [
            ["published, fcfs", "85.0", "", "2,492", "23.5"],
            ["published, shortest prompt", "78.7", "-7.5", "2,505", "23.4"],
        ],
    ),
    "shared-prefixes": Table(
        [
            Column("hit rate %", metric("cache_hit_rate_pct"), 1),
            Column("tokens/s, thousands", metric("total_throughput", 1e-3), 1),
            Column("difference of service, thousands", service_gap(20, 1)),
            Column("mean TTFT s: large", mean_ttft_s("large"), 1),
            Column("small", mean_ttft_s("small"), 1),
        ]
    ),
    "guessed-outputs": Table(
        [
            Column("mean latency s", metric("mean_e2e_latency_ms", 1e-3), 1),
            Column("change %", metric("mean_e2e_latency_ms"), 1, is_change=True),
            Column("median s", metric("median_e2e_latency_ms", 1e-3), 1),
            Column("p99 s", metric("p99_e2e_latency_ms", 1e-3), 1),
            Column("tokens/s", metric("output_throughput")),
        ]
    ),
    "tool-calls": Table(
        [
            Column("mean session s", session_s()),
            Column("change %", session_s(), 1, is_change=True),
            Column("p95 s", session_s(95)),
            Column("hit rate %", metric("cache_hit_rate_pct"), 1),
            Column("requests/s", metric("request_throughput"), 2),
            Column("retractions", metric("retractions")),
        ]
    ),
    "long-answers": Table(
        [
            Column("tokens/s", metric("output_throughput")),
            Column("retractions", metric("retractions")),
            Column("decode rows", metric("mean_decode_rows"), 1),
            Column("mean TTFT s", metric("mean_ttft_ms", 1e-3), 1),
            Column("p99 TPOT ms", metric("p99_tpot_ms")),
        ]
    ),
}


def row_name(settings: Settings) -> str:
    """`VirtualTokenCounter`, or `sigma 0.3`: the settings in words, mappings left out."""
    words = []
    for key, value in settings.items():
        keys = value if isinstance(value, dict) else {key.rpartition(".")[2]: value}
        for name, item in keys.items():
            if isinstance(item, str):
                words.append(item.rpartition(":")[2])
            elif not isinstance(item, dict):
                words.append(name if item is True else f"{name} {item}")
    return ", ".join(words)


def figures(name: str, columns: Sequence[Column]) -> list[tuple[Settings, list[float]]]:
    """Run a scenario's sweep: the settings without the seed, and the means of each column."""
    with user_code(True):
        plan = plan_sweep(load_scenario(SCENARIOS / f"{name}.yaml"))
        rows: list[tuple[Settings, list[list[float]]]] = []
        for point in plan.points:
            log = simulate_measured(build(plan.vary(point.settings)), RunOptions())
            run = Run(summarise(log), log)
            values = [column.figure(run) for column in columns]
            settings = {key: value for key, value in point.settings.items() if key != SEED}
            if rows and rows[-1][0] == settings:
                rows[-1][1].append(values)
            else:
                rows.append((settings, [values]))
    return [(settings, list(map(fmean, zip(*runs, strict=True)))) for settings, runs in rows]


def table(name: str) -> str:
    """The table of a scenario, in Markdown."""
    columns, published = TABLES[name]
    rows = figures(name, columns)

    def base(settings: Settings) -> list[float]:
        """First come, first served with the other settings the same, or else the first row."""
        alike = {**settings, _POLICY: "fcfs"}
        return next((values for each, values in rows if each == alike), rows[0][1])

    def cells(settings: Settings, values: list[float]) -> list[str]:
        shown = [row_name(settings)]
        for column, value, first in zip(columns, values, base(settings), strict=True):
            if column.is_change:
                shown.append(f"{100 * (value / first - 1):+.{column.digits}f}")
            else:
                shown.append(f"{value:,.{column.digits}f}")
        return shown

    header = ["", *(column.header for column in columns)]
    return markdown_table(header, [*(cells(*row) for row in rows), *published])


def main(names: Sequence[str]) -> None:
    try:
        for name in names:
            if name not in TABLES:
                raise InputError(f"{name}: no such table; there are {', '.join(TABLES)}")
        text = PAGE.read_text(encoding="utf-8")
        for name in names or TABLES:
            text = replaced(text, name, table(name), PAGE)
        with atomic_path(PAGE) as beside:
            beside.write_text(text, encoding="utf-8")
    except InputError as error:
        sys.stderr.write(f"bench: {error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
