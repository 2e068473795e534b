"""The controls of the page: which keys of a scenario can be moved, and to which values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.families import FAMILIES, family_named
from sim.report.figures.key_text import key_label, makes_load
from sim.scenario.load import LoadedScenario, refuse_pools
from sim.scenario.schema import Scenario

# The policy that others are compared with, and the one that is shown beside it unless the scenario
# has another.
FCFS, _LPM = "fcfs", "lpm"
FAIRNESS = "scheduler.fairness"
_FAIRNESS_T = f"{FAIRNESS}.t_ms"
# A slider goes from an eighth of the scenario's value to eight times as much, in steps of 19 %.
_FACTORS = tuple(2 ** (quarter / 4) for quarter in range(-12, 13))
_T_STOPS_MS = (0, 20, 50, 100, 150, 200, 300, 500, 1_000, 2_000, 5_000)
_REPLICA_STOPS = (1, 2, 3, 4, 6, 8, 12, 16)
_STEP_STOPS = (64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384)
_SHARE_STOPS = tuple(percent / 100 for percent in range(50, 96, 5))
# Keys of a benchmark's client that set its load.
_BENCH_LOAD = ("request_rate", "max_concurrency")


@dataclass(frozen=True, slots=True)
class Control:
    """A slider with a number box, or a list of choices.

    Attributes:
        key: the key path that it sets.
        label: its name on the page, with the unit.
        value: its first value, written as `--set` takes it: that of the scenario, but for a policy
            that is compared with first come, first served.
        stops: the values that the slider stops at, or the choices.
        is_choice: whether no other value can be set.
        implied: further `--set` options that setting the key takes.
        names: what values are called on the page, where that is not the value itself.
    """

    key: str
    label: str
    value: str
    stops: tuple[str, ...]
    is_choice: bool = False
    implied: tuple[str, ...] = ()
    names: Mapping[str, str] | None = None


def controls_of(loaded: LoadedScenario) -> list[Control]:
    """The controls that fit a scenario: load, policy, FAIRNESS_T, step size, pool, replicas."""
    refuse_pools(loaded, "the playground")
    scenario, section = loaded.scenario, loaded.scenario.scheduler
    if section.family not in FAMILIES:
        known = " and ".join(FAMILIES)
        reason = f"the playground knows {known}, not {section.family}"
        raise loaded.error(("scheduler", "family"), reason)
    controls = [*_loads(scenario), _policy(scenario), *_fairness(scenario)]
    family = family_named(section.family)
    key, tokens = f"scheduler.{family.step_tokens_key}", getattr(section, family.step_tokens_key)
    names = {"-1": "∞"} if tokens == -1 else None
    controls.append(_numbers(key, tokens, _STEP_STOPS, names))
    if section.pool_tokens is None:
        share_key, share = section.memory_share
        controls.append(_numbers(f"scheduler.{share_key}", share, _SHARE_STOPS))
    else:
        pool = getattr(section, section.pool_key)
        controls.append(_numbers(f"scheduler.{section.pool_key}", pool, _around(pool)))
    controls.append(_numbers("replicas", scenario.replicas, _REPLICA_STOPS))
    return controls


def policy_path(scenario: Scenario) -> str:
    """The key path of the order of the waiting queue."""
    return f"scheduler.{family_named(scenario.scheduler.family).policy_key}"


def policy_of(scenario: Scenario) -> str:
    """The order of the waiting queue."""
    return str(getattr(scenario.scheduler, family_named(scenario.scheduler.family).policy_key))


def _policy(scenario: Scenario) -> Control:
    family, own = family_named(scenario.scheduler.family), policy_of(scenario)
    # A class of the user's is offered only if the scenario itself names it.
    choices = tuple(dict.fromkeys([own, *family.policies()]))
    shown = _LPM if own == FCFS and _LPM in choices else own
    return Control(policy_path(scenario), family.policy_key, shown, choices, is_choice=True)


def _fairness(scenario: Scenario) -> Iterator[Control]:
    """A control of FAIRNESS_T, unless the family has none or the scenario has another rule."""
    section = scenario.scheduler
    if "fairness" not in type(section).model_fields:
        return
    rule = getattr(section, "fairness", None)
    if rule is not None and rule.kind != "fairness_t":
        return
    value = None if rule is None else rule.t_ms
    implied = (f"{FAIRNESS}.kind=fairness_t",) if rule is None else ()
    stops = [*_T_STOPS_MS, *([value] if value is not None else [])]
    texts = (*(_text(stop) for stop in sorted({float(stop) for stop in stops})), "null")
    yield Control(_FAIRNESS_T, "FAIRNESS_T (ms)", _text(value), texts, implied=implied,
                  names={"null": "∞"})  # fmt: skip


def _loads(scenario: Scenario) -> Iterator[Control]:
    """A control for each number of the section `workload` that sets how much load there is."""
    found = dict(_load_keys(scenario.workload.model_dump(), "workload"))
    tenants = {
        f"workload.parts.{place}.": part.tenant
        for place, part in enumerate(getattr(scenario.workload, "parts", ()))
    }
    for key, value in found.items():
        tenant = next((name for start, name in tenants.items() if key.startswith(start)), "")
        whose = f"{tenant}: " if tenant else ""
        yield _numbers(key, value, _around(value), label=f"{whose}{key_label(key, [key])}")


def _load_keys(data: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(data, Mapping):
        items: Sequence[tuple[Any, Any]] = list(data.items())
    elif isinstance(data, list | tuple):
        items = list(enumerate(data))
    else:
        return
    for key, value in items:
        inner = f"{path}.{key}"
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and (makes_load(inner) or key in _BENCH_LOAD):
            yield inner, value
        yield from _load_keys(value, inner)


def _numbers(
    key: str,
    value: float,
    stops: Sequence[float],
    names: Mapping[str, str] | None = None,
    label: str = "",
) -> Control:
    texts = tuple(_text(stop) for stop in sorted({*stops, value}))
    return Control(key, label or key_label(key, [key]), _text(value), texts, names=names)


def _around(value: float) -> tuple[float, ...]:
    """Values from an eighth to eight times as much, whole if the value is."""
    if isinstance(value, int):
        return tuple({max(1, round(float(f"{value * factor:.3g}"))) for factor in _FACTORS})
    return tuple(float(f"{value * factor:.3g}") for factor in _FACTORS)


def _text(value: float | None) -> str:
    if value is None:
        return "null"
    return str(int(value)) if float(value).is_integer() else repr(value)
