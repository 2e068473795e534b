"""Reads a launch command of vLLM that a user wrote: the tables of `launch_flags` backwards.

What its parser does with words is that of vLLM 0.33.0 (utils/argparse_utils.py): a flag with a dot
sets a key of a JSON object, `--config.key value`, and `-O3` is an optimization level.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sim.core.errors import InputError, shorten
from sim.core.flags import Command, Effect, Flags, flag_of
from sim.engine.server_config import BOTH, DECODE, PREFILL
from sim.family.launch_command import (
    Others,
    Programs,
    ServerSettings,
    Variables,
    flag_value,
    notes_on_flags,
    only_model,
    quantization_of,
    version_note,
    whole_number,
)
from sim.family.section import is_valid
from sim.vllm.launch_flags import (
    CONNECTOR,
    KEYS,
    KV_ROLES,
    MULTI_CONNECTOR,
    OFFLOADING_CONNECTOR,
)
from sim.vllm.read_offloading import check_backend, leave_out_offloading, takes_offloading
from sim.vllm.section.groups import KVCacheGroup, groups_for_model
from sim.vllm.section.scheduler import VllmSection
from sim.vllm.section.speculation import SpeculativeConfig
from sim.vllm.version_rules import NEWEST, version_with_rules_of

_PROGRAMS = Programs(
    names=(
        ("vllm", "serve"),
        ("vllm.entrypoints.openai.api_server",),
        ("vllm.entrypoints.cli.main", "serve"),
    ),
    image="vllm",
    has_entry_point=True,
)
_OTHERS = Others.of("sim.vllm")
_VARIABLES = Variables("VLLM_", _OTHERS.ignored, _OTHERS.of_time)
_WHERE = "--server"
_SWITCHES = {
    **{flag_of(key)[2:]: key for key in KEYS.switches},
    "enable-expert-parallel": "enable_expert_parallel", "ep": "enable_expert_parallel",
    "disable-hybrid-kv-cache-manager": "disable_hybrid_kv_cache_manager",
}  # fmt: skip
FLAGS = Flags(
    options={
        **KEYS.flags, "asc": "api_server_count", "device-memory-utilization":
        "gpu_memory_utilization",
        "tensor-parallel-size": "tp", "tp": "tp", "data-parallel-size": "dp", "dp": "dp",
        "pipeline-parallel-size": "pp", "pp": "pp", "model": "model",
        "quantization": "quantization", "q": "quantization",
        "stream-interval": "stream_interval", "kv-transfer-config": "kv_transfer_config",
        "sc": "speculative_config", "spec-method": "spec.method", "spec-model": "spec.model",
        "spec-tokens": "spec.num_speculative_tokens", "performance-mode": "performance_mode",
        "runner": "runner", "convert": "convert", "task": "task",
        "compilation-config": "compilation_config", "cc": "compilation_config",
        "kv-offloading-backend": "kv_offloading_backend",
    },
    switches={
        **{flag: (key, True) for flag, key in _SWITCHES.items()},
        **{f"no-{flag}": (key, False) for flag, key in _SWITCHES.items()},
        **{
            flag.replace("enable-", "disable-", 1): (key, False)
            for flag, key in _SWITCHES.items()
            if flag.startswith("enable-")
        },
    },
    lists={},
    ignored=(),
    others=_OTHERS.flags,
)  # fmt: skip
# What a server that generates text does; all else is another kind of server.
_GENERATES = {"runner": ("auto", "generate"), "convert": ("auto", "none"),
              "task": ("auto", "generate")}  # fmt: skip
# Connectors that keep a server's KV in other memory, for the same server.
_TO_MEMORY = ("Offloading", "LMCache", "SimpleCPUOffload", "MooncakeStore", "FlexKV", "HF3FS",
              "Example", "HiSparse", "DecodeBench")  # fmt: skip
# vLLM 0.33.0, `get_batch_defaults` of engine/arg_utils.py. GPUs with less than 70 GiB, and the
# A100, have smaller budgets by default, those with 160 GiB or more larger ones.
_SMALL = ("a100", "l4", "rtx_4", "rtx_5", "a10", "a30", "b60")
_LARGE = ("b200", "b300", "gb200", "gb300", "mi3")
_SIZES = (
    ("tp", "tensor-parallel-size"), ("dp", "data-parallel-size"), ("pp", "pipeline-parallel-size"),
)  # fmt: skip
_GROUPS = "kv_cache_groups"
_GROUPS_PAGE = "docs/explanation/layer-groups.md"


def read_vllm_launch(command: Command, system: str) -> ServerSettings | None:
    """See `Family.read_launch`."""
    words, version = _PROGRAMS.flags_of(command)
    if words is None:
        return None
    read = FLAGS.read(_with_objects(words), _WHERE)
    values: dict[str, Any] = dict(read.values)
    model = only_model(values, read)
    _refuse_pooling(values)
    formats, notes = quantization_of(values)
    check_backend(values, command.variables, notes)
    roles = _take_roles(values, notes)
    parallel = _take_parallel(values, notes)
    if values.pop("disable_hybrid_kv_cache_manager", False):
        values[_GROUPS] = None
    if values.pop("stream_interval", "1") != "1":
        notes.append("--stream-interval: clients get each token at once here, so ITL differs")
    ignored, unknown, of_time = _VARIABLES.sort(command.variables)
    notes += notes_on_flags(read, of_time)
    mode = values.pop("performance_mode", "")
    _take_compilation(values, notes)
    scheduler = {key: flag_value(given) for key, given in values.items()}
    if scheduler.get("max_model_len") in ("auto", -1):
        del scheduler["max_model_len"]
    looks_up = _take_drafts(scheduler, notes) == "ngram"
    if version:
        # First, so that flags which its rules do not have are the ones that are left out.
        taken = version_with_rules_of(version) or NEWEST
        scheduler = {"version": taken, **scheduler}
        notes += filter(None, [version_note("vLLM", version, taken)])
    sizes = _sizes(system, scheduler, mode)
    notes += [
        f"{key} {value} is vLLM's default on {system}"
        for key, value in sizes.items()
        if key not in scheduler
    ]
    # The budget comes first in the scenario, because other settings are limited by it.
    first = {key: scheduler[key] for key in ("version",) if key in scheduler}
    scheduler = {"family": "vllm", **first, **sizes, **scheduler}
    leave_out_offloading(scheduler, roles, notes)
    host = "vllm-async" if scheduler.get("async_scheduling", not looks_up) else "vllm-sync"
    return ServerSettings(
        model, scheduler, parallel, 1, formats, host,
        (*read.ignored, *ignored), (*read.unknown, *unknown), tuple(notes), roles,
    )  # fmt: skip


def gpu_defaults(system: str) -> dict[str, int]:
    """See `Family.gpu_defaults`."""
    tokens, seqs = (2048, 256) if system.startswith(_SMALL) else (8192, 1024)
    if system.startswith(_LARGE):
        tokens = 16384
    return {"max_num_batched_tokens": tokens, "max_num_seqs": seqs}


def pools_of_model(
    model: str, settings: Mapping[str, Any], num_stages: int
) -> tuple[dict[str, Any], list[str]]:
    """See `Family.pools_of_model`: the groups of layers of models with windows or states."""
    # Most commands read no model.
    from sim.latency.architectures.model_key import shape_if_known  # noqa: PLC0415

    shape = shape_if_known(model)
    if shape is None or _GROUPS in settings:
        return {}, []
    if any(layer.attention.state_bytes for layer in shape.layers):
        logged = "set scheduler.kv_cache_groups, and block_size as vLLM logs it"
        return {}, [f"the states of {shape.name} are not simulated: {logged} ({_GROUPS_PAGE})"]
    try:
        if groups_for_model(shape) is None:
            return {}, []
    except InputError as error:
        return {}, [f"the windows of {shape.name} are not simulated: {error}"]
    found = {_GROUPS: "model"}
    needs_size = num_stages > 1 and "num_gpu_blocks_override" not in settings
    if needs_size or not is_valid(VllmSection, {**settings, **found}):
        return {}, [f"the windows of {shape.name} are not simulated with the other flags"]
    return found, []


def groups_of(model: str) -> list[KVCacheGroup] | None:
    """The groups of a model's layers; None: there is one, or nothing is known of the model."""
    from sim.latency.architectures.model_key import shape_if_known  # noqa: PLC0415

    shape = shape_if_known(model)
    return None if shape is None else groups_for_model(shape)


def _sizes(system: str, scheduler: Mapping[str, Any], mode: str) -> dict[str, int]:
    """The defaults that depend on the GPU, the version and the mode."""
    sizes = gpu_defaults(system)
    if scheduler.get("version", NEWEST) != NEWEST:
        # Only the newest has a larger default for GPUs with 160 GiB or more.
        sizes["max_num_batched_tokens"] = min(8192, sizes["max_num_batched_tokens"])
    if mode == "throughput":
        sizes = {key: 2 * value for key, value in sizes.items()}
    longest = scheduler.get("max_model_len")
    if scheduler.get("enable_chunked_prefill") is False and isinstance(longest, int):
        sizes["max_num_batched_tokens"] = max(longest, sizes["max_num_batched_tokens"])
    if isinstance(budget := scheduler.get("max_num_batched_tokens"), int):
        sizes["max_num_seqs"] = min(sizes["max_num_seqs"], budget)
    return sizes


def _with_objects(words: Sequence[str]) -> list[str]:
    """The words with one JSON object in place of all flags with dots that set its keys."""
    rest: list[str] = []
    objects: dict[str, dict[str, Any]] = {}
    given = iter(words)
    for word in given:
        name, has_value, value = word.partition("=")
        if re.fullmatch(r"-O[^.]+", word):
            rest += ["--optimization-level", word[2:].removeprefix("=")]
        elif word == "-O":
            rest.append("--optimization-level")
        elif not (word.startswith("-") and "." in name and name.lstrip("-")[:1].isalpha()):
            rest.append(word)
        else:
            text = value if has_value else next(given, None)
            if text is None:
                raise InputError(f"{_WHERE}: {name}: has no value")
            flag, *keys = name.removesuffix("+").split(".")
            flag = "--compilation-config" if flag == "-O" else flag.replace("_", "-")
            found = text.split(",") if name.endswith("+") else _json_or_text(text)
            _put(objects.setdefault(flag, {}), keys, found)
    return [*rest, *(word for flag, keys in objects.items() for word in (flag, json.dumps(keys)))]


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return flag_value(text)


def _put(target: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    """Set the value at a path of keys; a list is appended to a list that is there."""
    *parents, last = keys
    for key in parents:
        inner = target.setdefault(key, {})
        target = inner if isinstance(inner, dict) else target
    earlier = target.get(last)
    if isinstance(earlier, list) and isinstance(value, list):
        value = [*earlier, *value]
    target[last] = value


def _refuse_pooling(values: dict[str, Any]) -> None:
    for key, generating in _GENERATES.items():
        if (given := values.pop(key, generating[0])) not in generating:
            raise InputError(f"{_WHERE}: --{key} {shorten(given)}: only generation is simulated")


def _take_parallel(values: dict[str, Any], notes: list[str]) -> dict[str, int]:
    tp, dp, pp = (whole_number(values, key, flag) for key, flag in _SIZES)
    spreads = bool(values.pop("enable_expert_parallel", False))
    if dp > 1 and not spreads:
        notes.append(
            f"--data-parallel-size {dp}: ranks step together, as with experts; for a dense model"
            " set replicas instead of latency.dp"
        )
    return {"tp": tp, "dp": dp, "pp": pp, "moe_ep": tp * dp if spreads else 1}


def _take_compilation(values: dict[str, Any], notes: list[str]) -> None:
    """Take the text of `compilation_config`: the largest graph is a key, all else is step time."""
    if (text := values.pop("compilation_config", None)) is None:
        return
    given = _json_or_text(text)
    largest = given.get("max_cudagraph_capture_size") if isinstance(given, dict) else None
    if largest is not None:
        values.setdefault("max_cudagraph_capture_size", str(largest))
    if largest is None or len(given) > 1:
        notes.append(f"--compilation-config {shorten(str(text))}: {Effect.TIME.value}")


def _take_drafts(scheduler: dict[str, Any], notes: list[str]) -> object:
    """Replace the text of `speculative_config` by the section's keys; returns the drafts' method.

    None: there are no drafts.
    """
    given = {}
    if (text := scheduler.pop("speculative_config", None)) is not None:
        given = _json_object(text, "--speculative-config")
    for key in ("method", "model", "num_speculative_tokens"):
        if (value := scheduler.pop(f"spec.{key}", None)) is not None:
            given[key] = value
    if not given:
        return None
    given["method"] = _method(given)
    known = SpeculativeConfig.model_fields
    drafts = {key: value for key, value in given.items() if key in known}
    if left_out := sorted(shorten(key) for key in given if key not in known):
        notes.append(f"--speculative-config: not simulated: {', '.join(left_out)}")
    try:
        SpeculativeConfig.model_validate(drafts)
    except ValueError:
        shown = shorten(json.dumps(drafts))
        raise InputError(
            f"{_WHERE}: --speculative-config {shown}: needs num_speculative_tokens, and method"
            " ngram, eagle, eagle3, mtp or draft_model: no others are simulated"
        ) from None
    scheduler["speculative_config"] = drafts
    notes.append("--speculative-config: set acceptance to how many draft tokens the model accepts")
    return drafts["method"]


def _method(given: Mapping[str, Any]) -> object:
    """How drafts are made: as vLLM finds it from the drafter's name if the method is not given."""
    method, model = given.get("method"), str(given.get("model", "")).lower()
    if isinstance(method, str) and method.endswith("_mtp"):
        return "mtp"
    if method in (None, "draft_model") and "eagle3" in model:
        return "eagle3"
    if method in (None, "draft_model") and "eagle-" in model:
        return "eagle"
    if method is None:
        return "ngram" if model in ("ngram", "[ngram]") else "draft_model"
    return method


def _take_roles(values: dict[str, Any], notes: list[str]) -> tuple[str, ...]:
    """Take `kv_transfer_config` out of the values. With kv_both, a proxy says who does what."""
    if (text := values.pop("kv_transfer_config", None)) is None:
        return (BOTH,)
    given = _json_object(text, "--kv-transfer-config")
    if takes_offloading(given, values, notes):
        return (BOTH,)
    given = _one_connector(given, values, notes)
    connector, role = str(given.get("kv_connector")), str(given.get("kv_role", "kv_both"))
    if connector == OFFLOADING_CONNECTOR and takes_offloading(given, values, notes):
        return (BOTH,)
    if role == "kv_both" and connector.startswith(_TO_MEMORY):
        notes.append(f"--kv-transfer-config: {shorten(connector)} is not simulated")
        return (BOTH,)
    if connector != CONNECTOR:
        notes.append(f"--kv-transfer-config: {shorten(connector)} is simulated as {CONNECTOR}")
    if (policy := given.get("kv_load_failure_policy")) is not None:
        values["kv_load_failure_policy"] = policy
    named = {name: (role,) for role, name in KV_ROLES.items()} | {"kv_both": (PREFILL, DECODE)}
    if role not in named:
        raise InputError(f"{_WHERE}: --kv-transfer-config: kv_role {shorten(role)} is unknown")
    return named[role]


def _one_connector(
    given: dict[str, Any], values: dict[str, Any], notes: list[str]
) -> dict[str, Any]:
    """The connector that sends KV, of several that `MultiConnector` has; else the first one.

    Beside one that sends, the settings of OffloadingConnector are taken.
    """
    extra = given.get("kv_connector_extra_config")
    parts = extra.get("connectors") if isinstance(extra, dict) else None
    if given.get("kv_connector") != MULTI_CONNECTOR or not isinstance(parts, list):
        return given
    several = [part for part in parts if isinstance(part, dict)]
    kept = [each for each in several if str(each.get("kv_connector")).startswith(_TO_MEMORY)]
    sending = [each for each in several if each not in kept]
    for each in kept if sending else ():
        if not takes_offloading(each, values, notes):
            notes.append(
                f"--kv-transfer-config: {shorten(str(each['kv_connector']))} is not simulated"
            )
        elif several.index(each) < several.index(sending[0]):
            notes.append(f"--kv-transfer-config: {CONNECTOR} is asked first here")
    return {**given, **next(iter(sending or several), {})}


def _json_object(text: Any, flag: str) -> dict[str, Any]:
    try:
        given = json.loads(str(text))
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise InputError(f"{_WHERE}: {flag} must be a JSON object")
    return given
