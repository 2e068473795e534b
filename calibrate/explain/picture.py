"""The causes as a picture: from the first run's means to the second's, bar by bar."""

from collections.abc import Iterator
from typing import NamedTuple

from calibrate.explain.causes import Explanation
from calibrate.explain.report import signed
from sim.metrics.registry import TPOT, TTFT
from sim.report.figures.marks import (
    BLACK,
    GREY,
    PALETTE,
    Axis,
    Band,
    Mark,
    Note,
    Panel,
    Picture,
)
from sim.tables.table import number

_PANEL_PX, _HEIGHT_PX = 640, 520
_HALF_WIDTH = 0.36


def picture(explanation: Explanation) -> Picture:
    """A panel for TTFT and one for TPOT."""
    panels = [_panel(explanation, latency.heading, key) for latency, key in _LATENCIES]
    return Picture(panels=panels, columns=2, size_px=(2 * _PANEL_PX, _HEIGHT_PX))


_LATENCIES = ((TTFT, "ttft_ms"), (TPOT, "tpot_ms"))


def _panel(explanation: Explanation, heading: str, key: str) -> Panel:
    """Bars from the mean before to the mean after; each begins where the one before it ended."""
    bars = list(_bars(explanation, key))
    marks: list[Mark] = []
    for place, bar in enumerate(bars):
        x = (place - _HALF_WIDTH, place + _HALF_WIDTH)
        low, high = sorted((bar.start, bar.end))
        marks += (
            Band(x=x, low=(low, low), high=(high, high), colour=bar.colour, opacity=0.85),
            Note(text=bar.text, x=place, y=high, colour=BLACK, dy=6.0),
        )
    ticks = [(float(place), bar.name) for place, bar in enumerate(bars)]
    highest = max(max(bar.start, bar.end) for bar in bars)
    return Panel(
        x=Axis(label="", limits=(-0.6, len(bars) - 0.4), ticks=ticks, is_slanted=True),
        y=Axis(label=f"mean {heading}, ms", limits=(0.0, 1.12 * max(highest, 1e-9))),
        marks=marks,
    )


class _Bar(NamedTuple):
    """From where to where it goes, and what is written above it."""

    name: str
    start: float
    end: float
    text: str
    colour: str


def _bars(explanation: Explanation, key: str) -> Iterator[_Bar]:
    level = explanation.before_ms[key]
    yield _Bar("before", 0.0, level, number(level), GREY)
    effects = [(cause.name, cause.effect_ms[key]) for cause in explanation.causes]
    for name, effect in [*effects, ("not explained", explanation.unexplained_ms[key])]:
        colour = PALETTE[1] if effect > 0 else PALETTE[2]
        yield _Bar(name, level, level + effect, signed(effect), colour)
        level += effect
    after = explanation.after_ms[key]
    yield _Bar("after", 0.0, after, number(after), GREY)
