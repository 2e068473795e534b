"""Launch commands of vLLM, written and read: scheduler settings as flags.

A flag is the key with hyphens; a switch that is off gets its `--no-` form. Some flags are always
given because vLLM's defaults are not fixed: those of `max_num_batched_tokens` and `max_num_seqs`
depend on the GPU, that of `max_model_len` depends on the model.
"""

import json
from collections.abc import Collection, Iterator
from typing import Any

from sim.core.errors import InputError
from sim.core.flags import Command, Flags, plain_value
from sim.core.messages import shorten
from sim.engine.server_config import BOTH, DECODE, PREFILL
from sim.family.launch_command import LaunchCommand, ServerSettings, quantization_of, whole_number
from sim.latency.config import Parallelism
from sim.validation import flag_of, launch_keys
from sim.vllm.section.scheduler import VllmSection
from sim.vllm.section.speculation import SpeculativeConfig
from sim.vllm.version_rules import VERSIONS

COMMAND = 'vllm serve "$MODEL"'

KEYS = launch_keys(VllmSection)
KV_ROLES = {PREFILL: "kv_producer", DECODE: "kv_consumer"}
CONNECTOR = "NixlConnector"
_PROGRAMS = (("vllm", "serve"), ("vllm.entrypoints.openai.api_server",))
_WHERE = "--server"
_FLAGS = Flags(
    options={
        **KEYS.flags,
        "tensor-parallel-size": "tp", "tp": "tp", "data-parallel-size": "dp", "dp": "dp",
        "pipeline-parallel-size": "pp", "pp": "pp", "model": "model",
        "quantization": "quantization", "q": "quantization",
        "stream-interval": "stream_interval", "kv-transfer-config": "kv_transfer_config",
    },
    switches={
        **{flag_of(key)[2:]: (key, True) for key in KEYS.switches},
        **{f"no{flag_of(key)[1:]}": (key, False) for key in KEYS.switches},
        "enable-expert-parallel": ("enable_expert_parallel", True),
    },
    lists={},
    ignored=(
        "host", "port", "trust-remote-code", "served-model-name", "tokenizer", "api-key",
        "download-dir", "load-format", "dtype", "disable-log-requests", "no-enable-log-requests",
        "disable-log-stats", "uvicorn-log-level", "chat-template", "tool-call-parser",
        "enable-auto-tool-choice", "reasoning-parser", "seed", "swap-space", "max-log-len",
        "disable-uvicorn-access-log",
    ),
)  # fmt: skip
# Connectors that keep a server's KV in other memory, for the same server.
_TO_MEMORY = ("OffloadingConnector", "LMCache", "SimpleCPUOffload")
# vLLM 0.33.0, `get_batch_defaults` of engine/arg_utils.py. GPUs with less than 70 GiB, and the
# A100, have smaller budgets by default, those with 160 GiB or more larger ones.
_SMALL = ("a100", "l4", "rtx", "a10", "a30")
_LARGE = ("b200", "b300", "gb200", "gb300", "mi3")
_SIZES = (
    ("tp", "tensor-parallel-size"), ("dp", "data-parallel-size"), ("pp", "pipeline-parallel-size"),
)  # fmt: skip


def vllm_launch(section: VllmSection, searched: Collection[str] = ()) -> LaunchCommand:
    """The launch command with every setting that differs from vLLM's default.

    Args:
        section: the settings.
        searched: keys that a search varied; they are given even if they have vLLM's default.
    """
    flags = [
        f"{flag_of(key)} {_value(section, key)}"
        for key in KEYS.given(section, KEYS.options, searched)
    ]
    flags += [_switch(key, value) for key, value in _switches(section)]
    if section.kv_load_failure_policy != "fail":
        flags.append(vllm_role(section, DECODE))
    return LaunchCommand(f"vLLM {section.version}", COMMAND, (), tuple(flags), ())


def vllm_role(section: VllmSection, role: str) -> str:
    """The flag of a server that only prefills, or only decodes."""
    settings = {"kv_connector": CONNECTOR, "kv_role": KV_ROLES[role]}
    if role == DECODE and section.kv_load_failure_policy != "fail":
        settings["kv_load_failure_policy"] = section.kv_load_failure_policy
    return f"--kv-transfer-config '{json.dumps(settings, separators=(',', ':'))}'"


def _switches(section: VllmSection) -> Iterator[tuple[str, bool]]:
    """The switches that are not as the version has them by default."""
    rules = VERSIONS[section.version]
    by_version = {
        "async_scheduling": (section.schedules_ahead, rules.async_scheduling),
        "scheduler_reserve_full_isl": (section.reserves_full_isl, rules.reserves_full_isl),
    }
    for key in KEYS.switches:
        of_all = getattr(section, key), VllmSection.model_fields[key].default
        value, default = by_version.get(key, of_all)
        if value != default:
            yield key, value


def _switch(key: str, value: bool) -> str:
    return flag_of(key) if value else f"--no{flag_of(key)[1:]}"


def vllm_parallel(spread: Parallelism) -> tuple[str, ...]:
    """The flags for several GPUs."""
    sizes = {
        "--tensor-parallel-size": spread.tp,
        "--data-parallel-size": spread.dp,
        "--pipeline-parallel-size": spread.pp,
    }
    flags = [f"{flag} {size}" for flag, size in sizes.items() if size > 1]
    return (*flags, "--enable-expert-parallel") if spread.moe_ep > 1 else tuple(flags)


def _value(section: VllmSection, key: str) -> str:
    value = getattr(section, key)
    if isinstance(value, SpeculativeConfig):
        return f"'{value.model_dump_json(exclude_none=True)}'"
    # null lets a request be as long as the pool; vLLM calls this `auto`.
    return "auto" if key == "max_model_len" and value is None else str(value)


# ---- reading -----------------------------------------------------------------------------------


def read_vllm_launch(command: Command, system: str) -> ServerSettings | None:
    """See `Family.read_launch`."""
    words = next(filter(None, (command.after(name) for name in _PROGRAMS)), None)
    if words is None:
        return None
    read = _FLAGS.read(words, _WHERE)
    values: dict[str, Any] = dict(read.values)
    formats, notes = quantization_of(values)
    roles = _take_roles(values, notes)
    tp, dp, pp = (whole_number(values, key, flag) for key, flag in _SIZES)
    spreads = bool(values.pop("enable_expert_parallel", False))
    parallel = {"tp": tp, "dp": dp, "pp": pp, "moe_ep": tp * dp if spreads else 1}
    if dp > 1 and not spreads:
        notes.append(
            f"--data-parallel-size {dp}: ranks step together, as with experts; for a dense model"
            " set replicas instead of latency.dp"
        )
    if values.pop("stream_interval", "1") != "1":
        notes.append("--stream-interval: clients get each token at once here, so ITL differs")
    model = str(values.pop("model", read.positional[0] if read.positional else ""))
    scheduler = {key: _read_value(given) for key, given in values.items()}
    if scheduler.get("max_model_len") == "auto":
        del scheduler["max_model_len"]
    looks_up = "speculative_config" in scheduler and _read_drafts(scheduler, notes) == "ngram"
    sizes = gpu_defaults(system)
    if isinstance(budget := scheduler.get("max_num_batched_tokens"), int):
        sizes["max_num_seqs"] = min(sizes["max_num_seqs"], budget)
    notes += [
        f"{key} {value} is vLLM's default on {system}"
        for key, value in sizes.items()
        if key not in scheduler
    ]
    # The budget comes first in the scenario, because other settings are limited by it.
    scheduler = {"family": "vllm", **sizes, **scheduler}
    host = "vllm-async" if scheduler.get("async_scheduling", not looks_up) else "vllm-sync"
    return ServerSettings(
        model, scheduler, parallel, 1, formats, host,
        read.ignored, (*read.unknown, *sorted(command.variables)), tuple(notes), roles,
    )  # fmt: skip


def gpu_defaults(system: str) -> dict[str, int]:
    """See `Family.gpu_defaults`."""
    tokens, seqs = (2048, 256) if system.startswith(_SMALL) else (8192, 1024)
    if system.startswith(_LARGE):
        tokens = 16384
    return {"max_num_batched_tokens": tokens, "max_num_seqs": seqs}


def _read_value(given: Any) -> Any:
    if given == "None":
        return None
    return plain_value(given) if isinstance(given, str) else given


def _read_drafts(scheduler: dict[str, Any], notes: list[str]) -> object:
    """Put the section's keys in the place of the text of `speculative_config`; their method."""
    given = _json_object(scheduler["speculative_config"], "--speculative-config")
    known = SpeculativeConfig.model_fields
    drafts = {key: value for key, value in given.items() if key in known}
    scheduler["speculative_config"] = drafts
    notes.append("--speculative-config: set acceptance to how many draft tokens the model accepts")
    if left_out := sorted(shorten(key) for key in given if key not in known):
        notes.append(f"--speculative-config: not simulated: {', '.join(left_out)}")
    return drafts.get("method")


def _take_roles(values: dict[str, Any], notes: list[str]) -> tuple[str, ...]:
    """Take `kv_transfer_config` out of the values. With kv_both, a proxy says who does what."""
    if (text := values.pop("kv_transfer_config", None)) is None:
        return (BOTH,)
    given = _json_object(text, "--kv-transfer-config")
    connector, role = str(given.get("kv_connector")), str(given.get("kv_role", "kv_both"))
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


def _json_object(text: Any, flag: str) -> dict[str, Any]:
    try:
        given = json.loads(str(text))
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise InputError(f"{_WHERE}: {flag} must be a JSON object")
    return given
