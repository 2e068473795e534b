"""The command that launches a real server: as settings make it, and as a user wrote it."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from typing import Any, NamedTuple

from sim.core.declared import is_version, same_version
from sim.core.errors import InputError, shorten
from sim.core.flags import Command, Effect, OtherFlags, ReadFlags, plain_value
from sim.engine.server_config import BOTH

# Flags of `docker run` whose values may look like images.
_BEFORE_PATHS = ("-v", "--volume", "--mount", "--name")
# A count that both engines take with a suffix: 1k is 1,000 and 1K is 1,024.
_COUNT = re.compile(r"(\d+(?:\.\d+)?)([kmgtKMGT])", re.ASCII)


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """A launch command, and the settings that it cannot express.

    Attributes:
        server: name and version of the server that the flags belong to.
        program: the command before its flags; the model is `$MODEL`.
        variables: environment variables, `NAME=value`.
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


class Programs(NamedTuple):
    """How a server is launched.

    Attributes:
        names: words that launch it; the server's flags follow.
        image: how names of its container images begin, without their registry.
        has_entry_point: such an image launches the server; its arguments are the flags.
    """

    names: Sequence[Sequence[str]]
    image: str
    has_entry_point: bool

    def flags_of(self, command: Command) -> tuple[list[str] | None, str]:
        """The words after the program, None if it is another one; and the version, if it is known.

        It is known from the tag of the container image.
        """
        place, version = self._image(command)
        for name in self.names:
            if (words := command.after(name)) is not None:
                return self._with_config(words, command), version
        if place is None or not self.has_entry_point:
            return None, version
        return self._with_config(command.words_from(place + 1), command), version

    def _image(self, command: Command) -> tuple[int | None, str]:
        """The place of the container image among the words, None if there is none; its version."""
        for place, (before, word) in enumerate(pairwise(["", *command.words])):
            name, _, tag = word.rpartition("/")[2].partition("@")[0].partition(":")
            is_image = name.startswith(self.image) and not {"/", ":"}.isdisjoint(word)
            if is_image and before not in _BEFORE_PATHS and not word.startswith("-"):
                return place, tag.removeprefix("v").partition("-")[0] if is_version(tag) else ""
        return None, ""

    @staticmethod
    def _with_config(words: list[str], command: Command) -> list[str]:
        first = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
        return [*words[:first], *command.config_flags, *words[first:]]


class Variables(NamedTuple):
    """What the environment variables of an engine do; those of others change nothing here.

    Attributes:
        prefix: how the engine's own begin.
        ignored, of_time: how names go on behind the prefix, of variables that change nothing, or
            only how long steps take.
        keys: names of those that set keys of a scenario.
    """

    prefix: str
    ignored: tuple[str, ...]
    of_time: tuple[str, ...]
    keys: frozenset[str] = frozenset()

    def sort(self, given: Mapping[str, str]) -> tuple[list[str], list[str], list[str]]:
        """Those that change nothing, those not known, and those of step times with values."""
        rest = sorted(given.keys() - self.keys)
        own = [name for name in rest if name.startswith(self.prefix)]
        length = len(self.prefix)
        ignored = [name for name in own if name.startswith(self.ignored, length)]
        of_time = [
            name
            for name in own
            if name not in ignored
            and (name.startswith(self.of_time, length) or name.endswith("_BACKEND"))
        ]
        unknown = [name for name in own if name not in {*of_time, *ignored}]
        ignored += [name for name in rest if name not in own]
        return ignored, unknown, [f"{name}={given[name]}" for name in of_time]


class Others(NamedTuple):
    """What `other_flags.toml` of an engine's package says, in which blanks separate the names.

    Attributes:
        ignored, of_time: how environment variables go on, see `Variables`.
    """

    flags: tuple[OtherFlags, ...]
    ignored: tuple[str, ...]
    of_time: tuple[str, ...]

    @classmethod
    def of(cls, package: str) -> "Others":
        read = tomllib.loads((files(package) / "other_flags.toml").read_text(encoding="utf-8"))
        flags = tuple(
            OtherFlags(
                Effect[group["effect"]],
                group.get("reason", ""),
                *(
                    frozenset(group.get(each, "").split())
                    for each in ("values", "switches", "lists")
                ),
            )
            for group in read["group"]
        )
        variables = (tuple(read["variables"][each].split()) for each in ("ignored", "of_time"))
        return cls(flags, *variables)


def version_note(title: str, version: str, taken: str) -> str:
    """A note on which version's rules are taken for a server; empty if they are its own."""
    if not is_version(version):
        return (
            f"{title} {shorten(version)}: is no version that is known; rules are those of {taken}"
        )
    if same_version(version, taken):
        return ""
    return f"{title} {shorten(version)}: rules are those of {taken}, the nearest known version"


def notes_on_flags(read: ReadFlags, variables: Sequence[str] = ()) -> list[str]:
    """A note on the flags that change something which is not simulated, for each reason.

    `variables` are environment variables that change only how long steps take.
    """
    of_time = [*variables]
    for group, texts in read.others.items():
        of_time += texts if group.effect is Effect.TIME else ()
    notes = [f"{', '.join(of_time)}: {Effect.TIME.value}"] if of_time else []
    return notes + [
        f"{', '.join(texts)}: {group.effect.value}: {group.reason}"
        for group, texts in read.others.items()
        if group.effect is Effect.NOT_SIMULATED
    ]


def only_model(values: dict[str, Any], read: ReadFlags) -> str:
    """Take the model out of the values: a flag's, or the only word that belongs to no flag."""
    words = read.positional
    if len(words) > 1:
        raise InputError(f"--server: {shorten(words[1])}: belongs to no flag")
    model = values.pop("model", "")
    return words[0] if words else str(model)


def flag_value(text: Any) -> Any:
    """A flag's text as the value of a key; a count may have a suffix, such as 16k."""
    if not isinstance(text, str):
        return text
    if text == "None":
        return None
    if (found := _COUNT.fullmatch(text)) is None:
        return plain_value(text)
    base = 1000 if found[2].islower() else 1024
    return int(float(found[1]) * base ** ("kmgt".index(found[2].lower()) + 1))


def whole_number(values: dict[str, Any], key: str, flag: str) -> int:
    """Take a flag's whole number, at least 1, out of the values; 1 without the flag."""
    number = plain_value(str(values.pop(key, 1)))
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InputError(f"--server: --{flag}: must be a whole number of at least 1, got {number}")
    return number


def weight_formats(weights: str) -> dict[str, str]:
    """The keys of `latency.quantization` for weights of one format; empty: the checkpoint's own.

    Experts with 8-bit weights, whose activations have no stored scales, run in the kernels that
    were measured as format `fp8_block` of aiconfigurator-core, or in similar ones (Triton; vLLM
    0.33.0, `fused_moe/oracle/fp8.py`). Its format `fp8` is of stored scales, which ModelOpt writes:
    other kernels, three times slower on an H100.
    """
    return {"gemm": weights, "moe": {"fp8": "fp8_block"}.get(weights, weights)} if weights else {}


def weight_flags(quantization: Mapping[str, str]) -> tuple[str, ...]:
    """The flag with which a server quantises weights as it loads them; see `quantization_of`."""
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
        formats |= weight_formats(weights)
        notes.append("--quantization fp8: if the checkpoint itself has fp8, leave gemm and moe out")
    elif weights != "none":
        notes.append(f"--quantization {weights}: the format of the checkpoint is taken")
    return formats, notes
