"""A window as a line of the terminal, a row of a table, and Prometheus' figures."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from calibrate.watch.judge import RULES, Verdict
from calibrate.watch.watcher import TITLES, Watched
from sim.tables.table import number

_US_PER_S = 1e6
_HEADINGS = "UTC       req/s  TTFT ms  predicted  TPOT ms  predicted   run  queue   KV %  hits %"
_WIDTHS = (8, 7, 9, 11, 9, 11, 6, 7, 7, 8)
# Windows after which the headings are printed again.
_PAGE = 25


def clock_time(at_us: int) -> str:
    """The time of day."""
    return datetime.fromtimestamp(at_us / _US_PER_S, UTC).strftime("%H:%M:%S")


def text_lines(watched: Watched) -> Iterator[str]:
    """The window's line, with headings now and then, and a line for each note."""
    window, verdicts = watched.window, watched.verdicts
    if watched.number % _PAGE == 0:
        yield _HEADINGS
    shown = window.figures
    cells = [clock_time(window.last.at_us), f"{window.num_arrived / window.seconds:.1f}"]
    for name in ("ttft_ms", "tpot_ms"):
        cells += [number(shown.get(name)), _predicted(verdicts.get(name))]
    cells += [f"{shown['running']:.1f}", f"{shown['waiting']:.1f}"]
    cells.append(f"{shown['kv_pct']:.1f}" if "kv_pct" in shown else "-")
    cells.append(f"{100 * window.hit_rate:.0f}")
    line = "".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
    state = "learning" if watched.is_learning else _drift_words(watched)
    yield f"{line}  {state}".rstrip()
    for note in watched.notes:
        yield f"{clock_time(window.last.at_us)}  {note}"


def _predicted(verdict: Verdict | None) -> str:
    return "-" if verdict is None else number(verdict.predicted)


def _drift_words(watched: Watched) -> str:
    return f"DRIFT {', '.join(TITLES[name] for name in watched.drifts)}" if watched.drifts else ""


_COLUMNS = ("measured", "predicted", "low", "high", "score", "drifts")
CSV_HEADER = (
    "end", "seconds", "arrived", "finished", "running", "kv_pct", "hit_pct", "preemptions",
    *(f"{name}_{column}" for name in RULES for column in _COLUMNS), "state", "notes",
)  # fmt: skip


def csv_row(watched: Watched) -> list[str]:
    """The window by the columns of `CSV_HEADER`; what is not known is empty."""
    window = watched.window
    end = datetime.fromtimestamp(window.last.at_us / _US_PER_S, UTC)
    row: list[object] = [
        end.isoformat(timespec="milliseconds"),
        round(window.seconds, 3),
        window.num_arrived,
        window.added.get("requests"),
        window.figures["running"],
        window.figures.get("kv_pct"),
        100 * window.hit_rate,
        window.added.get("preemptions"),
    ]
    for name in RULES:
        verdict = watched.verdicts.get(name)
        row += [getattr(verdict, column, None) for column in _COLUMNS]
    state = "learning" if watched.is_learning else "drift" if watched.drifts else ""
    row += [state, "; ".join(note.strip() for note in watched.notes)]
    return [_cell(value) for value in row]


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def prometheus_text(watched: Watched | None, num_drifts: int, *, is_up: bool) -> str:
    """The figures of the last window in Prometheus' text format; `num_drifts` began so far."""
    lines = [
        "# HELP servetwin_watch_up whether the server's figures could be read last time",
        "# TYPE servetwin_watch_up gauge",
        f"servetwin_watch_up {int(is_up)}",
        "# HELP servetwin_watch_drifts_total drifts that began",
        "# TYPE servetwin_watch_drifts_total counter",
        f"servetwin_watch_drifts_total {num_drifts}",
    ]
    if watched is not None:
        for column, about in _SHOWN:
            values = [
                (name, getattr(verdict, column)) for name, verdict in watched.verdicts.items()
            ]
            lines += _gauge(f"servetwin_watch_{column}", about, values)
    return "\n".join([*lines, ""])


_SHOWN = (
    ("measured", "figure of the last window, measured"),
    ("predicted", "what the twin predicts for it"),
    ("low", "lower end of what is usual"),
    ("high", "upper end of what is usual"),
    ("drifts", "1: too high for too long, -1: too low, 0: neither"),
)


def _gauge(name: str, about: str, values: Sequence[tuple[str, float | None]]) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} gauge"
    for figure, value in values:
        if value is not None:
            yield f'{name}{{figure="{figure}"}} {value:.6g}'
