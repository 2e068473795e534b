"""The figure of hit rate against the size of a cache, with its knee."""

import numpy as np

from sim.report.figures.axes import axis_from_zero
from sim.report.figures.marks import GREY, PALETTE, Axis, Guide, Line, Note, Panel, Picture
from sim.report.figures.plot_parts import Drawn, Layout, slug_of
from sim.report.hit_rates import KNEE, size_text
from sim.workload.reuse.curve import HitCurve

_NUM_POINTS = 400
_GIB = 1 << 30
_TITLE = "Hit rate against the size of the cache"
_CAPTION = (
    "Each point is what an LRU cache of that size finds of the prompts' tokens. The dashed line is"
    f" what an unlimited one finds; the knee is the smallest size that finds {100 * KNEE:.0f} % of"
    " that."
)


def draw_hit_rates(curve: HitCurve, bytes_per_token: int | None) -> Drawn:
    """The figure; its sizes are GiB if the bytes of a token's KV are known, else tokens."""
    most = max(2, curve.max_blocks)
    sizes = np.unique(np.geomspace(max(1, most / 1e3), 2 * most, _NUM_POINTS).astype(np.int64))
    per_block = curve.block_size * (1 if bytes_per_token is None else bytes_per_token / _GIB)
    rates = np.array([curve.hit_pct(int(size)) for size in sizes])
    unlimited, knee = curve.hit_pct(curve.max_blocks), curve.smallest(KNEE)
    unit = "tokens" if bytes_per_token is None else "GiB of KV"
    limits = (float(sizes[0] * per_block), float(sizes[-1] * per_block))
    x = Axis(label=f"size of the cache ({unit}, log scale)", limits=limits, is_log=True)
    y = axis_from_zero("hit rate (% of prompt tokens)", np.array([unlimited]))
    line = Line(
        x=(sizes * per_block).tolist(), y=rates, colour=PALETTE[0], has_values=True, steps=True
    )
    marks: list[Line | Guide | Note] = [Guide(axis="y", at=unlimited, colour=GREY), line]
    if knee:
        at, rate = knee * per_block, curve.hit_pct(knee)
        text = f"knee: {size_text(curve, knee, bytes_per_token)}, {rate:.1f} %"
        marks += [
            Guide(axis="x", at=at, colour=GREY),
            Line(x=[at], y=[rate], colour=PALETTE[1], width=0, marker="o", on_top=True),
            Note(text=text, x=at, y=rate, colour=PALETTE[1], dx=-8, dy=8),
        ]
    panel = Panel(x=x, y=y, marks=marks)
    picture = Picture(panels=[panel], columns=1, size_px=Layout.of(1).size_px, title=_TITLE)
    return Drawn(picture, slug_of("hit-rate", "cache-size"), _TITLE, _CAPTION)
