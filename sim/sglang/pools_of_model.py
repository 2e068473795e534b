"""The pools that a model needs beside KV for each token: what its name in a launch command says."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from sim.core.errors import InputError
from sim.sglang.section.scheduler import SglangSection
from sim.sglang.section.state_room import KEY as STATES
from sim.sglang.section.window import KEY as WINDOW
from sim.sglang.section.window import has_window_pool

if TYPE_CHECKING:
    from sim.latency.shapes import ModelShape


def pools_of_model(
    model: str, settings: Mapping[str, Any], num_stages: int
) -> tuple[dict[str, str], list[str]]:
    """The keys that SGLang's defaults stand for, and a note on each pool that is left out.

    Args:
        model: as the command names it; nothing follows from one that is not known.
        settings: the keys that the command's flags give.
        num_stages: stages of the pipeline.
    """
    shape = _shape_of(model)
    found: dict[str, str] = {}
    notes: list[str] = []
    if shape is None:
        return found, notes
    wanted = []
    if shape.state_bytes and STATES not in settings:
        wanted.append((STATES, "the pool of states"))
    if has_window_pool(shape) and not settings.get("disable_hybrid_swa_memory"):
        wanted.append((WINDOW, "the pool of layers with a sliding window"))
    for key, pool in wanted:
        if num_stages == 1 and _is_valid({**settings, key: "model"}):
            found[key] = "model"
        else:
            notes.append(f"{pool} of {shape.name} is not simulated with the other flags")
    return found, notes


def _shape_of(model: str) -> "ModelShape | None":
    # Most commands read no model.
    from sim.latency.architectures.model_key import find_model, shape_if_described  # noqa: PLC0415

    try:
        return shape_if_described(find_model(model, Path()))
    except InputError:
        return None


def _is_valid(settings: Mapping[str, Any]) -> bool:
    try:
        SglangSection.model_validate(settings)
    except ValidationError:
        return False
    return True
