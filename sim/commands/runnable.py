"""Makes sure that a scenario which was made of command lines can be simulated."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sim.commands.recorded_scenario import Hint, scenario_text
from sim.core.errors import InputError
from sim.latency.architectures.model_key import shape_if_known
from sim.latency.hardware import gpu_named
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text

_NAME = "scenario"
# Drafts that nothing drafts take no time.
_WITHOUT_DRAFTER = {"ngram", "NGRAM", None}


def runnable(
    data: dict[str, Any], hints: list[Hint], base_dir: Path
) -> tuple[dict[str, Any], list[Hint]]:
    """A scenario that can be built, with comments.

    A model or a GPU of which no operators were measured gets step times of kind roofline. Without
    the package of measured operators nothing is known, and the scenario stays as it is.

    Raises:
        InputError: `--server: reason`, if a run would refuse it.
    """
    if find_spec("aiconfigurator_core") is None or (reason := _why_not(data, base_dir)) is None:
        return data, hints
    other = _with_rooflines(data)
    refused = reason if other is None else _why_not(other, base_dir)
    if other is None or refused is not None:
        raise InputError(f"--server: {refused}")
    section = "pools" if "pools" in other else "latency"
    formats = [
        each["latency"].get("quantization") for each in data.get("pools", {"": data}).values()
    ]
    if any(formats):
        reason += "; that kind takes the number formats of the model's own checkpoint"
    text = f"step times of kind roofline, because those of measured operators are missing: {reason}"
    return other, [*hints, Hint(section, text)]


def _why_not(data: Mapping[str, Any], base_dir: Path) -> str | None:
    """Why a run would refuse the scenario; None: it would not."""
    try:
        build(load_scenario_text(scenario_text(data, ()), name=_NAME, base_dir=base_dir))
    except InputError as error:
        text = str(error).removeprefix(f"{_NAME}:").strip()
        line, _, rest = text.partition(": ")
        return rest if line.isdigit() else text
    return None


def _with_rooflines(data: dict[str, Any]) -> dict[str, Any] | None:
    """The scenario with kind roofline in place of aiconfigurator; None: that has no such servers.

    It has no ranks, and no times of drafters: a layer that drafts takes its share of the model's.
    """
    shape = shape_if_known(data["model"])
    num_layers = 0 if shape is None else sum(layer.count for layer in shape.layers)
    sections = data.get("pools", {"": data})
    changed = {}
    for name, section in sections.items():
        latency, scheduler = section["latency"], section["scheduler"]
        hardware = gpu_named(latency["system"])
        if hardware is None or latency.get("dp", 1) > 1:
            return None
        found = {key: latency[key] for key in ("tp", "pp") if key in latency}
        drafts = scheduler.get("speculative_config") or {}
        if {drafts.get("method"), scheduler.get("speculative_algorithm")} - _WITHOUT_DRAFTER:
            found["drafter_share"] = round(1 / max(1, num_layers), 4)
        new = {"hardware": hardware.name, "latency": {"kind": "roofline", **found}}
        rest = {key: value for key, value in section.items() if key not in new}
        first = {key: rest.pop(key) for key in ("name", "model", "role") if key in rest}
        changed[name] = {**first, **new, **rest}
    return {**data, "pools": changed} if "pools" in data else changed[""]
