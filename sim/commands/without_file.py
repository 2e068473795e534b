"""Helpers of commands that take options in the place of a scenario file."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.core.errors import InputError
from sim.core.flags import flag_of
from sim.core.messages import unknown_name

if TYPE_CHECKING:
    from sim.latency.hardware import Hardware
    from sim.scenario.load import LoadedScenario


def without_file(meaning: str, **more: Any) -> Any:
    """An option that is given in the place of FILE; `more` are arguments of `typer.Option`."""
    return typer.Option(help=f"without FILE: {meaning}", **more)


File = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", help="scenario file (YAML); without it, options say what is wanted"
    ),
]
Model = Annotated[str | None, without_file("the model, such as Qwen/Qwen3-32B", metavar="ID")]
Weights = Annotated[
    str | None,
    without_file(
        "format of the weights, such as fp8 or nvfp4; default: the model's", metavar="FORMAT"
    ),
]


def check_unused(options: Any, keys: Mapping[str, str]) -> None:
    """Raise InputError if one of the options is given: a scenario file has keys for them.

    Args:
        options: an object with a slot for each option; None or [] if it is not given.
        keys: by option, the key of a scenario that says the same; else `scheduler`.
    """
    for name in options.__slots__:
        if getattr(options, name) not in (None, []):
            option = flag_of(name)
            key = keys.get(option, "scheduler")
            raise InputError(f"{option}: goes without FILE; the key in FILE is {key}")


def check_given(options: Any, *names: str) -> None:
    """Raise InputError if one of these options, by the names of their slots, is not given."""
    missing = [flag_of(name) for name in names if getattr(options, name) in (None, [])]
    if len(missing) == len(names):
        raise InputError(f"FILE is missing; without it, {', '.join(missing)} are needed")
    if missing:
        raise InputError(f"{missing[0]}: is needed without FILE")


def find_gpu(name: str) -> "Hardware":
    """The GPU of `--hardware`, by its name (`h100-sxm`, `h100_sxm`) or by its `latency.system`."""
    from sim.latency.hardware import HARDWARE

    found = HARDWARE.get(name.replace("_", "-"))
    if found is None:
        found = next((row for row in HARDWARE.values() if row.system == name), None)
    if found is None:
        raise InputError(f"--hardware: {unknown_name('GPU', name, HARDWARE)}")
    return found


def weight_formats(model: str, weights: str | None) -> dict[str, str]:
    """The keys of `latency.quantization` for the format of `--weights`; None: the model's own."""
    if weights is None:
        return {}
    return dict.fromkeys(("gemm", "moe") if _has_experts(model) else ("gemm",), weights)


def _has_experts(model: str) -> bool:
    """Whether a model has experts; a model whose layers are not known may have."""
    from sim.latency.architectures.model_key import find_model, shape_if_described

    try:
        shape = shape_if_described(find_model(model, Path()))
    except InputError:
        return True
    return shape is None or any(layer.experts for layer in shape.layers)


def refuse_weights(weights: str | None, gpu: "Hardware") -> None:
    """Refuse `--weights` for a GPU whose step times come from its data sheet."""
    if weights is not None:
        reason = "has no measured operators, so the model's own format is used"
        raise InputError(f"--weights: {gpu.name} {reason}")


def scenario_text(loaded: "LoadedScenario", command: str) -> str:
    """The text of a scenario file that says the same as a command's options."""
    from sim.scenario.strict_yaml import yaml_text

    origin = f"# Written by simulate {command} from its options."
    return f"{origin} Change it and run simulate {command} FILE.\n{yaml_text(dict(loaded.raw))}"
