"""Reads a launch command of SGLang that a user wrote: the tables of `launch_flags` backwards.

Whether the model needs a window pool or a pool of states follows from its name alone.
"""

import json
from collections.abc import Mapping
from typing import Any

from sim.core.declared import entry_for
from sim.core.errors import InputError, shorten
from sim.core.flags import Command, Flags, flag_of, plain_value
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
from sim.sglang.config import DEFAULT_MAX_RUNNING
from sim.sglang.launch_flags import (
    DELAYER_OPTIONS,
    DELAYER_SWITCH,
    EVICTION_CONFIG,
    HOST_CACHE_OPTIONS,
    HOST_CACHE_SWITCH,
    KEYS,
    NGRAM_BREADTH,
    SPECULATIVE_OPTIONS,
    take_speculative,
)
from sim.sglang.section.pools import STATES, WINDOW, has_window_pool
from sim.sglang.section.scheduler import SglangSection
from sim.sglang.version_rules import NEWEST, version_with_rules_of

_PROGRAMS = Programs(
    names=(("sglang.launch_server",), ("sglang", "serve"), ("launch_server.py",)),
    image="sglang",
    has_entry_point=False,
)
_OTHERS = Others.of("sim.sglang")
_VARIABLES = Variables(
    "SGLANG_", _OTHERS.ignored, _OTHERS.of_time, frozenset(KEYS.variables.values())
)
_WHERE = "--server"
_EVICTION_KEY = "radix_eviction_policy_config"
_SWITCHES = {
    **{flag_of(key)[2:]: key for key in KEYS.switches},
    "enable-dp-attention": "enable_dp_attention",
    HOST_CACHE_SWITCH: "host_cache", "enable-hicache": "host_cache",
    DELAYER_SWITCH: "prefill_delayer",
}  # fmt: skip
FLAGS = Flags(
    options={
        **KEYS.flags, **{flag_of(key)[2:]: key for key in SPECULATIVE_OPTIONS},
        NGRAM_BREADTH: NGRAM_BREADTH, "speculative-draft-model": "speculative_draft_model_path",
        # Prefixes that several flags have in 0.5.23, and older versions' names.
        "tp": "tp", "dp": "dp", "pp": "pp", "cuda-graph-max-bs-decode": "cuda_graph_max_bs",
        "tp-size": "tp", "tensor-parallel-size": "tp", "dp-size": "dp", "data-parallel-size": "dp",
        "attn-dp-size": "attn_dp", "attention-data-parallel-size": "attn_dp",
        "ep-size": "ep", "expert-parallel-size": "ep", "ep": "ep",
        "pp-size": "pp", "pipeline-parallel-size": "pp", "model-path": "model", "model": "model",
        "quantization": "quantization",
        "stream-interval": "stream_interval", "disaggregation-mode": "disaggregation_mode",
        **{flag: f"host_cache.{key}" for key, flag in HOST_CACHE_OPTIONS.items()},
        EVICTION_CONFIG: _EVICTION_KEY,
        **{flag: f"prefill_delayer.{key}" for key, flag in DELAYER_OPTIONS.items()},
    },
    switches={flag: (key, True) for flag, key in _SWITCHES.items()},
    lists={},
    ignored=(),
    others=_OTHERS.flags,
)  # fmt: skip
_HOST_CACHE = ("host_cache", *(f"host_cache.{key}" for key in HOST_CACHE_OPTIONS))
# Their servers may have parts that are simulated with the rules of another version only.
_WITHOUT_PARTS = ("0.5.17", "0.5.22")
# The presets of `host`, by the first version that each is for.
_HOSTS = {name: f"sglang-{name}" for name in ("0.5.1", "0.5.3", "0.5.5", "0.5.9", "0.5.10")}
# SGLang's default chunk by a GPU's memory: 90 to 160 GiB and less than 90 GiB have 8192.
_CHUNKS = {
    ("b2", "b3", "gb", "mi3"): 16_384,
    ("l40", "a100_40gb"): 4096,
    ("l4_", "rtx_4", "rtx_5", "a10_", "a30", "b60"): 2048,
}
_CHUNK = 8192
# Its smallest default, whatever the pool's size is.
_MAX_RUNNING = 2048


def read_sglang_launch(command: Command, system: str) -> ServerSettings | None:
    """See `Family.read_launch`."""
    words, version = _PROGRAMS.flags_of(command)
    if words is None:
        return None
    read = FLAGS.read(words, _WHERE)
    values: dict[str, Any] = dict(read.values)
    model = only_model(values, read)
    role = _role(values)
    formats, notes = quantization_of(values)
    parallel, replicas = _parallel(values)
    if values.pop("stream_interval", "1") != "1":
        notes.append("--stream-interval: clients get each token at once here, so ITL differs")
    if role == DECODE and not values.get("host_cache") and "host_cache.ratio" in values:
        values["hicache_ratio"] = values.pop("host_cache.ratio")
    of_host_memory = [values.pop(key, None) for key in _HOST_CACHE]
    if any(of_host_memory):
        notes.append(
            f"--{HOST_CACHE_SWITCH}: how fast KV is loaded back is not in the command: set"
            " scheduler.host_cache"
        )
    settings = _eviction_settings(values) | _delayer(values)
    drafts, draft_notes = take_speculative(values, _WHERE)
    notes += draft_notes
    ignored, unknown, of_time = _VARIABLES.sort(command.variables)
    notes += notes_on_flags(read, of_time)
    scheduler = {key: flag_value(text) for key, text in (values | drafts).items()}
    scheduler |= {**settings, **_of_variables(command)}
    host = _HOSTS["0.5.10"]
    if version:
        # First, so that flags which its rules do not have are the ones that are left out.
        taken = rules_taken(version, model, has_drafts=bool(drafts)) or NEWEST
        scheduler = {"version": taken, **scheduler}
        host = entry_for(version, _HOSTS) or host
        notes += filter(None, [version_note("SGLang", version, taken)])
    if scheduler.get("schedule_policy") == "priority":
        raise InputError(
            f"{_WHERE}: --schedule-policy priority: SGLang 0.5.23 takes the flag and does not start"
            " with it; give --enable-priority-scheduling"
        )
    sizes = gpu_defaults(system)
    if "chunked_prefill_size" not in scheduler:
        chunk = sizes["chunked_prefill_size"]
        notes.append(f"chunked_prefill_size {chunk} is SGLang's default on {system}")
    if drafts:
        sizes["max_running_requests"] = DEFAULT_MAX_RUNNING
    return ServerSettings(
        model, {"family": "sglang", **sizes, **scheduler}, parallel, replicas, formats, host,
        (*read.ignored, *ignored), (*read.unknown, *unknown), tuple(notes), (role,),
    )  # fmt: skip


def _role(values: dict[str, Any]) -> str:
    role = str(values.pop("disaggregation_mode", "null"))
    if role not in {"null", PREFILL, DECODE}:
        raise InputError(f"{_WHERE}: --disaggregation-mode: {shorten(role)} is no role of SGLang's")
    return BOTH if role == "null" else role


def _parallel(values: dict[str, Any]) -> tuple[dict[str, int], int]:
    """With DP attention the ranks share the GPUs of TP; without it, DP is whole servers."""
    num_gpus = whole_number(values, "tp", "tp-size")
    dp = whole_number(values, "dp", "dp-size")
    attention_dp = whole_number(values, "attn_dp", "attn-dp-size")
    moe_ep = whole_number(values, "ep", "ep-size")
    if values.pop("enable_dp_attention", False):
        attention_dp, dp = dp, 1
    tp, pp = max(1, num_gpus // attention_dp), whole_number(values, "pp", "pp-size")
    return {"tp": tp, "dp": attention_dp, "pp": pp, "moe_ep": moe_ep}, dp


def _eviction_settings(values: dict[str, Any]) -> dict[str, Any]:
    """Take the JSON object out of the values."""
    if (text := values.pop(_EVICTION_KEY, None)) is None:
        return {}
    try:
        settings = json.loads(text)
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise InputError(f"{_WHERE}: --{EVICTION_CONFIG}: {shorten(repr(text))} is no JSON object")
    return {_EVICTION_KEY: settings}


def _delayer(values: dict[str, Any]) -> dict[str, Any]:
    """Take the prefill delayer's flags out of the values; without the switch they do nothing."""
    given = {key: values.pop(f"prefill_delayer.{key}", None) for key in DELAYER_OPTIONS}
    if not values.pop("prefill_delayer", False):
        return {}
    settings = {key: plain_value(text) for key, text in given.items() if text is not None}
    return {"prefill_delayer": settings}


def _of_variables(command: Command) -> dict[str, Any]:
    return {
        key: plain_value(command.variables[name])
        for key, name in KEYS.variables.items()
        if name in command.variables
    }


def gpu_defaults(system: str) -> dict[str, int]:
    """See `Family.gpu_defaults`."""
    chunks = (chunk for names, chunk in _CHUNKS.items() if f"{system}_".startswith(names))
    return {"chunked_prefill_size": next(chunks, _CHUNK), "max_running_requests": _MAX_RUNNING}


def rules_taken(version: str, model: str, *, has_drafts: bool) -> str | None:
    """Whose rules are taken for a server of this version; None for what is not a version.

    Drafts, windows and states are simulated with the newest rules only. So servers of 0.5.14 and
    later that have them take all of these.
    """
    taken = version_with_rules_of(version)
    if taken in _WITHOUT_PARTS and (has_drafts or pools_of_model(model, {}, 1)[0]):
        return NEWEST
    return taken


def pools_of_model(
    model: str, settings: Mapping[str, Any], num_stages: int
) -> tuple[dict[str, Any], list[str]]:
    """See `Family.pools_of_model`."""
    # Most commands read no model.
    from sim.latency.architectures.model_key import shape_if_known  # noqa: PLC0415

    shape = shape_if_known(model)
    found: dict[str, Any] = {}
    notes: list[str] = []
    if shape is None:
        return found, notes
    wanted = []
    if shape.state_bytes and STATES not in settings:
        wanted.append((STATES, "the pool of states"))
    if has_window_pool(shape) and not settings.get("disable_hybrid_swa_memory"):
        wanted.append((WINDOW, "the pool of layers with a sliding window"))
    for key, pool in wanted:
        if num_stages == 1 and is_valid(SglangSection, {**settings, key: "model"}):
            found[key] = "model"
        else:
            notes.append(f"{pool} of {shape.name} is not simulated with the other flags")
    return found, notes
