"""What a scenario's `report:` section may say: which pictures `simulate report` draws of its sweep.

It is no part of what is simulated: neither a run nor a point's identity depends on it.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from sim.strict_model import StrictModel


def _listed(value: object) -> object:
    """One name is a list of one."""
    return [value] if isinstance(value, str) else value


Text = Annotated[str, Field(min_length=1)]
Key = Annotated[str, Field(min_length=1)]
Metric = Annotated[str, Field(min_length=1)]
Keys = Annotated[tuple[Key, ...], Field(strict=False), BeforeValidator(_listed)]
Metrics = Annotated[tuple[Metric, ...], Field(strict=False, min_length=1), BeforeValidator(_listed)]
Scale = Literal["linear", "log"]
Distribution = Literal["ttft_ms", "tpot_ms", "itl_ms", "e2e_latency_ms"]


class _Plot(StrictModel):
    """What every plot may say.

    Attributes:
        title: above the picture; None: made of the metrics and keys.
        caption: below it; None: what is seen, in a sentence.
        where: only settings with this value, or one of these values, of a swept key.
    """

    title: Text | None = None
    caption: Text | None = None
    where: Annotated[dict[str, Any], Field(min_length=1)] | None = None


class _Axes(_Plot):
    """What the axes are called; None: made of the metrics and keys."""

    x_label: Text | None = None
    y_label: Text | None = None


class _ScaledAxes(_Axes):
    """And their scales; None: by the values."""

    x_scale: Scale | None = None
    y_scale: Scale | None = None


class CurvePlot(_ScaledAxes):
    """Metrics against a swept key with numbers; one panel a metric, one line a value of `lines`."""

    kind: Literal["curve"]
    x: Key
    y: Metrics
    lines: Keys = ()


class BarsPlot(_Axes):
    """Metrics by the values of a swept key, whatever these are; colours by `lines`."""

    kind: Literal["bars"]
    x: Key
    y: Metrics
    lines: Keys = ()
    y_scale: Scale | None = None


class TradeOffPlot(_ScaledAxes):
    """One metric against another; points along a swept key are joined in its order."""

    kind: Literal["trade-off"]
    x: Metric
    y: Metric
    along: Key
    lines: Keys = ()
    knee: bool = True


class HeatPlot(_Axes):
    """One metric as colour over two swept keys."""

    kind: Literal["heat"]
    x: Key
    y: Key
    value: Metric
    scale: Scale | None = None


class CdfPlot(_Plot):
    """The distribution of a latency over requests; one curve a value of `lines` and a group."""

    kind: Literal["cdf"]
    metric: Distribution = "ttft_ms"
    lines: Keys = ()
    of: Metrics = ("all",)
    x_scale: Scale | None = None
    x_label: Text | None = None


class LoadPlot(_ScaledAxes):
    """Metrics against the load that a swept key makes, with the point where it is too much."""

    kind: Literal["load"]
    x: Key
    y: Metrics | None = None
    lines: Keys = ()
    at: Literal["request_rate", "key"] | None = None


class ScatterPlot(_ScaledAxes):
    """Metrics against a swept key: a dot for each setting, whatever its other keys are."""

    kind: Literal["scatter"]
    x: Key
    y: Metrics
    lines: Keys = ()


Plot = Annotated[
    CurvePlot | BarsPlot | TradeOffPlot | HeatPlot | CdfPlot | LoadPlot | ScatterPlot,
    Field(discriminator="kind"),
]


class ReportSection(StrictModel):
    """What the report of a sweep shows.

    Attributes:
        title: of the page; None: the scenario's name.
        text: below the title.
        plots: what is drawn, in this order; None: chosen by the swept keys.
    """

    title: Text | None = None
    text: Text | None = None
    plots: Annotated[tuple[Plot, ...], Field(strict=False, min_length=1)] | None = None
