"""What a scenario's `report:` section may say: which plots `simulate report` draws of its sweep."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from sim.validation import ByKind, StrictModel


def _listed(value: object) -> object:
    """A name alone means a list with that name."""
    return [value] if isinstance(value, str) else value


Text = Annotated[str, Field(min_length=1)]
Key = Annotated[str, Field(min_length=1)]
Metric = Annotated[str, Field(min_length=1)]
Keys = Annotated[tuple[Key, ...], Field(strict=False), BeforeValidator(_listed)]
Metrics = Annotated[tuple[Metric, ...], Field(strict=False, min_length=1), BeforeValidator(_listed)]
Scale = Literal["linear", "log"]
Distribution = Literal["ttft_ms", "tpot_ms", "itl_ms", "e2e_latency_ms"]


class _Plot(StrictModel):
    """Keys that every plot has."""

    title: Text | None = None
    """Title of the plot. Without it: made from what is drawn."""
    caption: Text | None = None
    """Text below the plot. Without it: a sentence about what is drawn."""
    where: Annotated[dict[str, Any], Field(min_length=1)] | None = None
    """Draw only settings with this value, or with one of these values, of a swept key."""


class _Axes(_Plot):
    """Titles of the axes."""

    x_label: Text | None = None
    """Title of the x axis, with the unit. Without it: made from what the axis shows."""
    y_label: Text | None = None
    """Title of the y axes, with the unit. Without it: made from what the axes show."""


class _ScaledAxes(_Axes):
    """Titles and scales of the axes."""

    x_scale: Scale | None = None
    """Scale of the x axis. Without it: chosen by the values."""
    y_scale: Scale | None = None
    """Scale of the y axes. Without it: chosen by the values."""


class CurvePlot(_ScaledAxes):
    """Lines over a swept key with numbers.

    A value that means "no limit" (`null` or -1) is drawn at the right end, as ∞.
    """

    kind: Literal["curve"]
    x: Key
    """Swept key, from left to right."""
    y: Metrics
    """Metrics. Each has a panel of its own."""
    lines: Keys = ()
    """Swept keys. Each of their values, or combinations of values, is a line."""


class BarsPlot(_Axes):
    """Metrics by the values of a swept key. The values need not be numbers."""

    kind: Literal["bars"]
    x: Key
    """Swept key, from left to right in the order of the sweep."""
    y: Metrics
    """Metrics. Each has a panel of its own."""
    lines: Keys = ()
    """Swept keys. Each value has a colour; the bars stand side by side."""
    y_scale: Scale | None = None
    """Scale of the y axes. With `log`, dots are drawn instead of bars. Without it: chosen by the
    values."""


class TradeOffPlot(_ScaledAxes):
    """One metric against another."""

    kind: Literal["trade-off"]
    x: Metric
    """Metric, to the right."""
    y: Metric
    """Metric, upwards."""
    along: Key
    """Swept key. Its values label the points, which are joined in its order."""
    lines: Keys = ()
    """Swept keys. Each value is a line."""
    knee: bool = True
    """Mark the knee of each line that has one (docs/how-to/report.md#the-knee)."""


class HeatPlot(_Axes):
    """One metric as colour over two swept keys. Each cell shows its value."""

    kind: Literal["heat"]
    x: Key
    """Swept key of the columns."""
    y: Key
    """Swept key of the rows."""
    value: Metric
    """Metric shown as colour."""
    scale: Scale | None = None
    """Scale of the colours. Without it: chosen by the values."""
    against: Annotated[dict[str, Any], Field(min_length=1)] | None = None
    """Show by how many percent the best of the other settings of a cell is better than the best of
    those that have these values, or one of these values, of swept keys. Without it: the metric
    itself."""


class CdfPlot(_Plot):
    """The share of requests up to each latency (for ITL: the share of token gaps)."""

    kind: Literal["cdf"]
    metric: Distribution = "ttft_ms"
    """The latency."""
    lines: Keys = ()
    """Swept keys. Each value is a curve."""
    of: Metrics = ("all",)
    """Whose requests: `all`, `hot`, `cold` or `tenants.NAME`. Only metric `ttft_ms` has groups
    other than `all`."""
    x_scale: Scale | None = None
    """Scale of the latency axis. Without it: chosen by the values."""
    x_label: Text | None = None
    """Title of the x axis, with the unit. Without it: made from what the axis shows."""


class LoadPlot(_ScaledAxes):
    """Metrics against the load, with the first saturated load marked."""

    kind: Literal["load"]
    x: Key
    """Swept key that makes the load: a rate, a `time_scale`, a number of clients."""
    y: Metrics | None = None
    """Metrics. Each has a panel of its own. Without it: goodput if the scenario has an `slo`,
    else throughput."""
    lines: Keys = ()
    """Swept keys. Each value is a line."""
    at: Literal["request_rate", "key"] | None = None
    """What the x axis shows: the requests sent per second, or the value of the key. Without it:
    requests per second for keys that end in `rate_rps`, `time_scale` or `every_s`, the value for
    other keys."""


class ScatterPlot(_ScaledAxes):
    """A dot for each setting.

    This plot is for random sweeps, where no two settings share a value.
    """

    kind: Literal["scatter"]
    x: Key
    """Swept key, from left to right."""
    y: Metrics
    """Metrics. Each has a panel of its own."""
    lines: Keys = ()
    """Swept keys. Each value has a colour."""


Plot = Annotated[
    CurvePlot | BarsPlot | TradeOffPlot | HeatPlot | CdfPlot | LoadPlot | ScatterPlot,
    ByKind(),
]


class ReportSection(StrictModel):
    """What `simulate report` draws of a sweep.

    docs/how-to/report.md explains keys, metrics, panels and scales. The section changes no result.
    """

    title: Text | None = None
    """Title of the page. Without it: the scenario's name."""
    text: Text | None = None
    """Text below the title. An empty line begins a paragraph."""
    plots: Annotated[tuple[Plot, ...], Field(strict=False, min_length=1)] | None = None
    """What is drawn, in this order. Without it: chosen by the swept keys."""
