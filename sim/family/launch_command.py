"""The command that launches a real server: as settings make it, and as a user wrote it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sim.core.errors import InputError
from sim.core.flags import plain_value
from sim.engine.server_config import BOTH


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """A launch command, and the settings that it cannot express.

    Attributes:
        server: name and version of the server that the flags belong to.
        program: the command before its flags; the model is `$MODEL`.
        variables: environment variables, `NAME=value`.
        flags: flags of the command, each with its value.
        without_flag: settings for which the server has no flag, each as `key=value`.
    """

    server: str
    program: str
    variables: tuple[str, ...]
    flags: tuple[str, ...]
    without_flag: tuple[str, ...]

    @property
    def command(self) -> str:
        """One line for a shell."""
        return " ".join((*self.variables, self.program, *self.flags))


class ServerSettings(NamedTuple):
    """What a user's launch command says.

    Attributes:
        model: as the command has it: a Hugging Face id or a path.
        scheduler: keys of the section `scheduler`, with defaults that depend on the GPU.
        parallel: keys of the section `latency` that say how the model is spread over GPUs.
        replicas: identical servers.
        quantization: keys of `latency.quantization`.
        host: the preset of the section `host` that is nearest to the newest version.
        ignored, unknown: flags and variables that change nothing here, and those not known.
        notes: a sentence each, about what is not as the command says.
        roles: what the server may compute (`sim.engine.server_config`): several if its flags leave
            that to the router.
    """

    model: str
    scheduler: dict[str, Any]
    parallel: dict[str, int]
    replicas: int
    quantization: dict[str, str]
    host: str
    ignored: tuple[str, ...]
    unknown: tuple[str, ...]
    notes: tuple[str, ...]
    roles: tuple[str, ...] = (BOTH,)


def whole_number(values: dict[str, Any], key: str, flag: str) -> int:
    """Take a flag's whole number, at least 1, out of the values; 1 without the flag."""
    number = plain_value(str(values.pop(key, 1)))
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InputError(f"--server: --{flag}: must be a whole number of at least 1, got {number}")
    return number


def weight_flags(quantization: Mapping[str, str]) -> tuple[str, ...]:
    """The flag for weights that the server quantises as it loads them: `quantization_of` back."""
    return ("--quantization fp8",) if quantization.get("gemm") == "fp8" else ()


def quantization_of(values: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Take `quantization` and `kv_cache_dtype` out of the values; also notes on what is left out.

    Both engines name formats alike; a checkpoint's own format needs no flag.
    """
    formats: dict[str, str] = {}
    notes = []
    kv_cache = str(values.pop("kv_cache_dtype", "auto"))
    if kv_cache.startswith("fp8"):
        formats["kv_cache"] = "fp8"
    elif kv_cache not in {"auto", "bfloat16", "bf16"}:
        notes.append(f"--kv-cache-dtype {kv_cache} is not simulated: the model's is taken")
    weights = str(values.pop("quantization", "none"))
    if weights == "fp8":
        formats |= {"gemm": "fp8", "moe": "fp8"}
        notes.append("--quantization fp8: if the checkpoint itself has fp8, leave gemm and moe out")
    elif weights != "none":
        notes.append(f"--quantization {weights}: the format of the checkpoint is taken")
    return formats, notes
