"""Scrapes of a made-up server, and the windows between them."""

import math
from typing import Any

from sim.server_metrics.scrape import Histogram, Scrape
from sim.server_metrics.window import Window, WindowBuilder


def scrape(
    at_s: float = 0.0,
    *,
    tokens: int = 0,
    ttfts: int = 0,
    info: dict[str, str] | None = None,
    **figures: Any,
) -> Scrape:
    """A server of which every token took 20 ms, and every first one 0.2 s."""
    histograms = {key: one for key, one in figures.items() if isinstance(one, Histogram)}
    values = {key: one for key, one in figures.items() if key not in histograms}
    return Scrape(
        at_us=round(at_s * 1e6),
        family="vllm",
        values={"requests": 0, "running": 0, "waiting": 0, **values},
        histograms={
            "itl_s": Histogram((0.1, math.inf), (tokens, tokens), 0.02 * tokens),
            "ttft_s": Histogram((0.1, math.inf), (0, ttfts), 0.2 * ttfts),
            **histograms,
        },
        info=info or {},
    )


def windows(*scrapes: Scrape, seconds: float = 2.0) -> list[Window]:
    builder = WindowBuilder(seconds)
    return [window for each in scrapes if (window := builder.take(each)) is not None]
