"""Options of commands: those that stand for a scenario file, and `--sure` of the searches."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sim.core.errors import InputError, KeyPath, dotted, say, shorten, unknown_name
from sim.core.flags import flag_of

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

    `options` has a slot for each; None or [] if it is not given. `keys` has, by option, the key of
    a scenario that says the same; else that is `scheduler`.
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
    from sim.latency.hardware import HARDWARE, gpu_named

    if (found := gpu_named(name)) is None:
        raise InputError(f"--hardware: {unknown_name('GPU', name, HARDWARE)}")
    return found


def formats_of(model: str, weights: str | None) -> dict[str, str]:
    """The keys of `latency.quantization` for the format of `--weights`; None: the model's own."""
    from sim.family.launch_command import weight_formats

    formats = weight_formats(weights or "")
    if not has_experts(model):
        formats.pop("moe", None)
    return formats


def has_experts(model: str) -> bool:
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


SCENARIO = "scenario.yaml"
# As many as `vllm bench serve` sends by default.
_NUM_REQUESTS = 1000
_TRAFFIC = re.compile(
    r"(?P<input_len>\d{1,9})/(?P<output_len>\d{1,9})(?:x(?P<max_concurrency>\d{1,9}))?"
    r"(?:@(?P<request_rate>\d{1,9}(?:\.\d{1,9})?))?",
    re.ASCII,
)
# The option that sets each key, for errors; the last key of an option is the usual one.
_LABELS: Mapping[KeyPath, str] = {
    ("model",): "--model",
    ("latency", "system"): "--hardware",
    ("hardware",): "--hardware",
    ("latency", "tp"): "--tp",
    ("latency", "quantization", "moe"): "--weights",
    ("latency", "quantization", "gemm"): "--weights",
    ("scheduler", "family"): "--server",
    ("workload",): "--traffic",
    ("workload", "num_prompts"): "--num-requests",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OneServer:
    """The options that describe a server and its traffic in place of a scenario file."""

    model: Model = None
    hardware: Annotated[str | None, without_file("the GPU, such as h100_sxm", metavar="GPU")] = None
    traffic: Annotated[
        str | None,
        without_file(
            "tokens of each prompt and answer, and requests/s (4000/500@6) or how many at a time"
            " (4000/500x32)",
            metavar="TOKENS/TOKENS@RATE",
        ),
    ] = None
    tp: Annotated[
        int | None, without_file("GPUs of the server (tensor parallel); default: 1", min=1)
    ] = None
    server: Annotated[
        str | None, without_file("sglang or vllm; default: sglang", metavar="FAMILY")
    ] = None
    weights: Weights = None
    num_requests: Annotated[
        int | None, without_file(f"how many are sent; default: {_NUM_REQUESTS}", min=1)
    ] = None

    def check_unused(self) -> None:
        """Raise InputError if one of the options is given: a scenario file has keys for them."""
        check_unused(self, {label: dotted(key) for key, label in _LABELS.items()})

    def load(self, folder: Path, overrides: Sequence[str]) -> "LoadedScenario":
        """The scenario that asks this, as if it were a file in a folder.

        Raises InputError: an option is missing or has a wrong value. The message names it.
        """
        from sim.scenario.load import load_scenario_options
        from sim.scenario.overrides import from_here

        check_given(self, "model", "hardware", "traffic")
        gpu = find_gpu(self.hardware or "")
        data = {
            "name": "run",
            "model": from_here("model", self.model, folder),
            **self._server(gpu),
            "workload": self._workload(),
        }
        floor = {"hardware": gpu.name, "latency": {"kind": "roofline", "tp": self.tp or 1}}
        path = folder / SCENARIO
        if gpu.system is None:
            refuse_weights(self.weights, gpu)
            return load_scenario_options(data | floor, _LABELS, overrides, path=path)
        loaded = load_scenario_options(data, _LABELS, overrides, path=path)
        reason = None if self.weights else _lacks_operators(loaded)
        if reason is None:
            return loaded
        say(f"servetwin: step times are a floor, from the data sheet of {gpu.name}: {reason}")
        return load_scenario_options(data | floor, _LABELS, overrides, path=path)

    def _server(self, gpu: "Hardware") -> dict[str, Any]:
        """The sections that describe a server which was launched without further flags."""
        from sim.commands.import_commands import sections_of
        from sim.core.flags import Command
        from sim.families import DEFAULT_FAMILY, FAMILIES

        name, model, tp = self.server or DEFAULT_FAMILY, self.model or "", self.tp or 1
        if name not in FAMILIES:
            raise InputError(f"--server: {unknown_name('family', name, FAMILIES)}")
        system = gpu.system or gpu.name.replace("-", "_")
        launch = Command({}, [name, "serve", model, "--tensor-parallel-size", str(tp)])
        settings = FAMILIES[name].read_launch(launch, system)
        if settings is None:
            raise InputError(f"--server: {name} has no command that launches it")
        formats = formats_of(model, self.weights)
        sections, _ = sections_of(settings._replace(quantization=formats), system)
        return sections

    def _workload(self) -> dict[str, Any]:
        text = self.traffic or ""
        found = _TRAFFIC.fullmatch(text)
        given = {} if found is None else {key: v for key, v in found.groupdict().items() if v}
        if len(given) < 3:
            what = "PROMPT/ANSWER@RATE, such as 4000/500@6, or PROMPT/ANSWERxCLIENTS"
            raise InputError(f"--traffic: must be {what}, such as 4000/500x32, got {shorten(text)}")
        rate = {"request_rate": float(given.pop("request_rate"))} if "@" in text else {}
        return {
            "kind": "bench",
            "client": "vllm",
            "num_prompts": self.num_requests or _NUM_REQUESTS,
            **{key: int(value) for key, value in given.items()},
            **rate,
        }


def _lacks_operators(loaded: "LoadedScenario") -> str | None:
    """Why there are no measured step times of a scenario; None: there are, or it is wrong."""
    from sim.latency.aiconfigurator.package import open_engine
    from sim.latency.config import AiconfiguratorLatencyConfig
    from sim.scenario.kv_sizes import ServedModel, latency_section

    section = latency_section(loaded.scenario)
    if not isinstance(section, AiconfiguratorLatencyConfig):
        return None
    try:
        # A run goes on with what is opened here.
        open_engine(ServedModel.of(loaded.scenario, loaded.base_dir).deployment(section))
    except InputError as error:
        return error.reason if error.key == ("latency",) else None
    return None


Sure = Annotated[
    bool,
    typer.Option(
        "--sure",
        help="meet the SLO at the upper ends of the 90 % intervals: 9 of 10 such servers would",
    ),
]


def made_sure(
    loaded: "LoadedScenario", section: Literal["plan", "tune"], *, sure: bool
) -> "LoadedScenario":
    """The scenario with `judged_by` of its section as `--sure` sets it, if it is given."""
    from sim.scenario.load import change

    if not sure or getattr(loaded.scenario, section) is None:
        return loaded
    return change(loaded, [f"{section}.judged_by=upper_end"])
