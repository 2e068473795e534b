"""The page of a watch: figures over time, and what happened. Loads matplotlib."""

from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

import numpy as np

from calibrate.watch.judge import RULES
from calibrate.watch.rows import clock_time
from calibrate.watch.watcher import TITLES, Watched
from sim import __version__
from sim.report.document import document, page_file
from sim.report.figures.marks import (
    PALETTE,
    Axis,
    Band,
    Guide,
    Line,
    Mark,
    Panel,
    Picture,
    Style,
)
from sim.report.figures.render import figure_bytes, matplotlib_figure

_UNITS = {"ttft_ms": "ms", "tpot_ms": "ms", "waiting": "requests", "kv_share_pct": "% of the pool"}
_SIZE_PX = (1_200, 760)
_US_PER_MIN = 60e6
_MEASURED, _PREDICTED, _DRIFT = PALETTE[0], PALETTE[1], "#b00020"


def picture(rows: Sequence[Watched]) -> Picture:
    """A panel for each figure that is judged."""
    start_us = rows[0].window.first.at_us
    ends = [(row.window.last.at_us - start_us) / _US_PER_MIN for row in rows]
    legend = [
        Style("measured", _MEASURED, marker=""),
        Style("predicted, and what is usual", _PREDICTED, marker=""),
    ]
    panels = [_panel(name, rows, ends) for name in RULES]
    return Picture(panels=panels, columns=2, size_px=_SIZE_PX, legend=legend)


def _panel(name: str, rows: Sequence[Watched], ends: Sequence[float]) -> Panel:
    def column(attribute: str) -> list[float]:
        found = [getattr(row.verdicts.get(name), attribute, None) for row in rows]
        return [np.nan if value is None else float(value) for value in found]

    measured, predicted, low, high = map(column, ("measured", "predicted", "low", "high"))
    marks: list[Mark] = [
        Band(x=ends, low=low, high=high, colour=_PREDICTED, opacity=0.2),
        Line(x=ends, y=predicted, colour=_PREDICTED, width=1.0),
        Line(x=ends, y=measured, colour=_MEASURED),
    ]
    marks += [
        Guide(axis="x", at=end, colour=_DRIFT)
        for end, row, before in zip(ends, rows, [None, *rows], strict=False)
        if name in row.drifts and (before is None or name not in before.drifts)
    ]
    known = [value for value in (*measured, *high) if not np.isnan(value)]
    top = 1.05 * max((*known, 1e-3))
    return Panel(
        x=Axis(label="minutes since the beginning", limits=(0.0, max(ends[-1], 1e-3))),
        y=Axis(label=f"{TITLES[name]}, {_UNITS[name]}", limits=(0.0, top)),
        marks=marks,
    )


def page(rows: Sequence[Watched], notes: Sequence[tuple[int, str]], refresh_s: int) -> str:
    """The whole document; `notes` are those of all time, as far as they are kept, newest last.

    The browser loads it again every `refresh_s` seconds; 0: never.
    """
    figure = matplotlib_figure(picture(rows))
    data = b64encode(figure_bytes(figure, "svg")).decode("ascii")
    last = rows[-1]
    day = datetime.fromtimestamp(last.window.last.at_us / 1e6, UTC).date()
    state = "learning the twin's usual error" if last.is_learning else "no drift"
    if last.drifts:
        state = f"drift: {', '.join(TITLES[name] for name in last.drifts)}"
    parts = [
        "<h1>A twin beside a server</h1>",
        f'<p class="facts">{day} {clock_time(last.window.last.at_us)} UTC: {escape(state)}.</p>',
        *(f'<p class="bad">Likely: {escape(cause)}</p>' for cause in last.causes[:1]),
        f'<img src="data:image/svg+xml;base64,{data}" alt="measured and predicted figures">',
        "<h2>What happened</h2>",
        *(f"<p>{clock_time(at_us)} {escape(note)}</p>" for at_us, note in reversed(notes)),
        f"<footer>Drawn by servetwin {escape(__version__)}.</footer>",
    ]
    return document(
        "calibrate watch",
        "\n".join(parts),
        style=page_file("report.css"),
        scripts=(),
        refresh_s=refresh_s,
    )
