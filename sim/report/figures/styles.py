"""How lines look, and the words of units: what no library that draws is needed for."""

from sim.core.units import NS_PER_S
from sim.report.figures.marks import Dash, Fill, Style

# Okabe and Ito's palette, which the colour-blind can tell apart; strongest contrasts first.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY, BLACK = "#6b6b6b", "#222222"

_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# How markers are filled, one way for each of DASHES.
_FILLS: tuple[Fill, ...] = ("full", "none", "left", "top")
DASHES: tuple[Dash, ...] = ((), (5, 2), (1, 1.5), (5, 2, 1, 2))
# Patterns of bars: one way for each of DASHES, and again for lines beyond the last colour.
_HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo", "--")


def numbered_style(label: str, number: int, dash: int = 0) -> Style:
    """The style of line `number`; `dash` numbers its dashes.

    No two lines have the same colour and marker, nor bars the same colour and pattern, as long as a
    figure has at most 28 lines.
    """
    # Three turns for each round of the colours: so two rounds of three groups differ, too.
    colour, turn = PALETTE[number % len(PALETTE)], number // len(PALETTE) * 3 + dash
    marker, fill = _MARKERS[(number + turn) % len(_MARKERS)], _FILLS[dash % len(_FILLS)]
    return Style(
        label, colour, DASHES[dash % len(DASHES)], marker, fill, _HATCHES[turn % len(_HATCHES)]
    )


def time_unit(duration_ns: int) -> tuple[int, str]:
    """The unit for a time axis of this length: its ns, and its name."""
    if duration_ns < 600 * NS_PER_S:
        return NS_PER_S, "s"
    if duration_ns < 3 * 3_600 * NS_PER_S:
        return 60 * NS_PER_S, "min"
    return 3_600 * NS_PER_S, "h"


def latency_text(milliseconds: float) -> str:
    """A latency with its unit, to three digits."""
    if milliseconds < 1_000:
        return f"{milliseconds:.3g} ms"
    if milliseconds < 999_500:
        return f"{milliseconds / 1_000:.3g} s"
    return f"{milliseconds / 1_000:,.0f} s"
