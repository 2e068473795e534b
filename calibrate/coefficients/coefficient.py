"""The coefficients that are fitted, for each kind of latency, by their keys in a scenario."""

from collections.abc import Sequence
from dataclasses import dataclass

from sim.core.errors import InputError
from sim.latency.config import (
    AiconfiguratorLatencyConfig,
    LinearLatencyConfig,
    RooflineLatencyConfig,
)
from sim.scenario.load import LoadedScenario

KINDS = ("linear", "roofline", "aiconfigurator")
FRONT_END = "host.front_end_s"
_MOST_S = 60.0
_DIGITS = 5
# Smaller amounts count as 0.
_LEAST_AMOUNT = 1e-6
# First guesses for kind linear: the share of each term in a mean step.
_SHARES = {
    "step_s": (0.4, 0.7, 0.2, 0.5),
    "per_prefill_token_s": (0.2, 0.1, 0.1, 0.05),
    "per_decode_request_s": (0.2, 0.1, 0.35, 0.25),
    "per_context_token_s": (0.2, 0.1, 0.35, 0.2),
}
# First guesses for a speed: times are longer than with the scenario's own value by these factors.
_SLOWNESS = (1.0, 1.5, 2.5)


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A coefficient to be fitted.

    The fit works with amounts: the value divided by `unit`, or, for a speed, `unit` divided by the
    value. So every amount is of the order of 1, and times grow in proportion to it.

    Attributes:
        key: its key in a scenario.
        held: its value if the results do not determine it.
        unit: a value at which it takes about as long as a mean step; of a speed: the value at the
            start.
        guesses: amounts to begin with; the fit begins with the best of them. All coefficients of a
            fit have equally many, which belong together.
        highest: the largest value that a scenario takes.
        is_speed: times fall as the value rises.
    """

    key: str
    held: float
    unit: float
    guesses: tuple[float, ...]
    highest: float = _MOST_S
    is_speed: bool = False

    @property
    def held_amount(self) -> float:
        return self.unit / self.held if self.is_speed else self.held / self.unit

    @property
    def lowest_amount(self) -> float:
        return self.unit / self.highest if self.is_speed else 0.0

    def value(self, amount: float) -> float:
        """The value in the scenario, rounded to the digits that are written."""
        if self.is_speed:
            value = self.unit / max(amount, self.lowest_amount)
        else:
            value = amount * self.unit if amount > _LEAST_AMOUNT else 0.0
        return float(f"{min(value, self.highest):.{_DIGITS}g}")


@dataclass(frozen=True, slots=True)
class MeanStep:
    """A mean step of the measured runs, as far as time stamps show it.

    Attributes:
        seconds: how long it took.
        prefill_tokens, decode_rows, context_tokens: what was in it.
    """

    seconds: float
    prefill_tokens: float
    decode_rows: float
    context_tokens: float


def coefficients_of(
    loaded: LoadedScenario, mean: MeanStep, *, overlaps: bool, has_start: bool
) -> Sequence[Coefficient]:
    """The coefficients of the scenario's kind of latency, the most important first.

    The host time that overlap scheduling does not hide has a key of its own in each kind: without
    overlap it is `latency.host_s`.

    Args:
        loaded: the scenario.
        mean: a mean step of the measured runs.
        overlaps: its servers schedule with overlap.
        has_start: the scenario's own values come from a template; an import did not make them up.

    Raises:
        InputError: the kind has no coefficients that could be fitted.
    """
    section, host = loaded.scenario.latency, loaded.scenario.host
    front_end_s = 0.0 if host is None else host.front_end_s
    if isinstance(section, LinearLatencyConfig):
        step, prefill, *others = _linear(section, mean, has_start=has_start)
        return (step, prefill, _time(FRONT_END, front_end_s, mean, len(step.guesses)), *others)
    if isinstance(section, RooflineLatencyConfig):
        names, highest = ["mfu", "bandwidth_efficiency"], 1.0
        exposed = "latency.step_overhead_s", section.step_overhead_s
    elif isinstance(section, AiconfiguratorLatencyConfig):
        names, highest = ["efficiency"], 10.0
        exposed = "host.step_gap_s", 0.0 if host is None else host.step_gap_s
    else:
        reason = f"kind {section.kind} has no coefficients to fit: take one of {', '.join(KINDS)}"
        raise loaded.error(("latency", "kind"), reason)
    shares = {name: getattr(section, name) for name in names}
    speeds = [
        Coefficient(f"latency.{name}", share, share, _SLOWNESS, highest, is_speed=True)
        for name, share in shares.items()
    ]
    key, seconds = exposed if overlaps else ("latency.host_s", section.host_s)
    times = ((key, seconds), (FRONT_END, front_end_s))
    return (*speeds, *(_time(name, value, mean, len(_SLOWNESS)) for name, value in times))


def _time(key: str, seconds: float, mean: MeanStep, num_guesses: int) -> Coefficient:
    """A time that is as long as a mean step if its amount is 1."""
    guesses = (seconds / mean.seconds,) * num_guesses
    return Coefficient(key, seconds, mean.seconds, guesses)


def _linear(
    section: LinearLatencyConfig, mean: MeanStep, *, has_start: bool
) -> Sequence[Coefficient]:
    amounts = (1.0, mean.prefill_tokens, mean.decode_rows, mean.context_tokens)
    found = []
    for (name, guesses), amount in zip(_SHARES.items(), amounts, strict=True):
        unit, own = mean.seconds / max(amount, 1e-9), getattr(section, name)
        found.append(
            Coefficient(f"latency.{name}", own, unit, (own / unit, *guesses))
            if has_start
            else Coefficient(f"latency.{name}", 0.0, unit, guesses)
        )
    return found


def check_kind(kind: str) -> None:
    """Raises InputError unless coefficients of this kind of latency can be fitted."""
    if kind not in KINDS:
        raise InputError(f"--kind {kind}: must be one of {', '.join(KINDS)}")
