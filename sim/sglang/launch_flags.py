"""Scheduler settings as launch flags of SGLang, and the commands that launch servers and a router.

A flag is the key with hyphens; `read_launch` reads the same tables back. Some settings are
environment variables in SGLang, and some do not exist in SGLang. `chunked_prefill_size` and
`max_running_requests` are always given, because their defaults in SGLang depend on the GPU's
memory. SGLang drafts trees unless it is told otherwise: for Llama models, and for n-grams. So the
flags that make the drafts a chain are always given, and a command without them is refused.

Flags of roles are those of SGLang 0.5.23 (`arg_groups/fields/disagg.py`), flags of the router those
of sglang-router 0.3.2 (`sglang_router/router_args.py`).
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import BaseModel

from sim.core.errors import InputError
from sim.core.flags import flag_of
from sim.engine.server_config import BOTH, DECODE, PREFILL
from sim.family.launch_command import LaunchCommand
from sim.latency.config import Parallelism
from sim.sglang.config import mixes
from sim.sglang.section.host_cache import DEFAULT_RATIO, HostCacheSection
from sim.sglang.section.keys import SglangKeys
from sim.sglang.section.rules import PackConfig, PrefillDelayerSection
from sim.sglang.section.scheduler import SglangSection
from sim.sglang.section.speculation import KEY, speculative_settings
from sim.sglang.section.storage import STORAGE_EXTRA, StorageSection
from sim.sglang.version_rules import NEWEST
from sim.user.objects import UserClass
from sim.validation import launch_keys

COMMAND = 'python -m sglang.launch_server --model-path "$MODEL"'
KEYS = launch_keys(SglangSection)
# SGLang counts the states itself if the flag is missing.
_AS_WITHOUT_FLAG = ("max_mamba_cache_size", "model")
# Decode once between two prefill steps, if any request decodes.
DECODE_FIRST = ("prefill-decode-interval", "prefill-decode-interval-min-bs")
# The prefill delayer: the switch, and options by key of the section `prefill_delayer`.
DELAYER_SWITCH = "enable-prefill-delayer"
DELAYER_OPTIONS = {
    key: f"prefill-delayer-{key.replace('_', '-')}" for key in PrefillDelayerSection.model_fields
}
EVICTION_CONFIG = "radix-eviction-policy-config"
# Flags of host memory: the switch, and options by key of the section `host_cache`.
HOST_CACHE_SWITCH = "enable-hierarchical-cache"
HOST_CACHE_OPTIONS = {
    "ratio": "hicache-ratio",
    "size_gb": "hicache-size",
    "write_policy": "hicache-write-policy",
}
_SGLANG_POLICIES = ("fcfs", "lpm", "dfs-weight", "lof", "random", "hrrn", "shortest-prefill-first",
                    "routing-key")  # fmt: skip
_SGLANG_EVICTION = ("lru", "lfu", "slru", "tlru", "priority")
SPECULATIVE_OPTIONS: Final = (
    KEY,
    "speculative_num_steps",
    "speculative_num_draft_tokens",
    "speculative_eagle_topk",
    "speculative_draft_model_path",
)
NGRAM_BREADTH: Final = "speculative-ngram-max-bfs-breadth"
_NEEDS_MODEL = ("EAGLE", "EAGLE3", "STANDALONE")
_SERVER_PORT = 30000
# SGLang's default of --disaggregation-bootstrap-port.
_BOOTSTRAP_PORT = 8998
_ROUTER_POLICIES = {
    "round-robin": "round_robin",
    "random": "random",
    "power-of-two": "power_of_two",
    "prefix-aware": "cache_aware",
}


def sglang_launch(section: SglangSection, searched: Collection[str] = ()) -> LaunchCommand:
    """The launch command with every setting that differs from SGLang's default.

    `searched` keys are given even if they have SGLang's default.
    """
    without_flag = dict(_without_flag(section)) | dict(_host_cache_without_flag(section.host_cache))
    options = [
        f"{_option(section, key)} {getattr(section, key)}"
        for key in KEYS.given(
            section, sorted(KEYS.options, key=lambda key: key != "schedule_policy"), searched
        )
        if (key, getattr(section, key)) != _AS_WITHOUT_FLAG
    ]
    flags = [*options, *(flag_of(key) for key in KEYS.switches if getattr(section, key))]
    flags = [flag for flag in flags if flag.split()[0] not in map(flag_of, without_flag)]
    if section.schedule_policy == "priority":
        flags = _priority_flags(section, flags)
    if section.decode_first and "decode_first" not in without_flag:
        flags += [f"--{flag} 1" for flag in DECODE_FIRST]
    if section.prefill_delayer is not None:
        changed = section.prefill_delayer.model_dump(exclude_defaults=True)
        flags.append(f"--{DELAYER_SWITCH}")
        flags += [f"--{DELAYER_OPTIONS[key]} {value}" for key, value in changed.items()]
    if section.radix_eviction_policy_config is not None:
        settings = section.radix_eviction_policy_config.model_dump_json(exclude_none=True)
        flags.append(f"--{EVICTION_CONFIG} '{settings}'")
    flags += speculative_flags(section)
    flags += _host_cache_flags(section.host_cache)
    variables = [
        f"{KEYS.variables[key]}={getattr(section, key)}"
        for key in KEYS.given(section, KEYS.variables, searched)
    ]
    others = tuple(f"{key}={value}" for key, value in without_flag.items())
    server = f"SGLang {section.version}"
    return LaunchCommand(server, COMMAND, tuple(variables), tuple(flags), others)


def _option(section: SglangSection, key: str) -> str:
    """The flag of a key. 0.5.23 refuses `--cuda-graph-max-bs`, with which two flags begin there."""
    is_captured = key == "cuda_graph_max_bs" and section.version == NEWEST
    return f"{flag_of(key)}-decode" if is_captured else flag_of(key)


def sglang_parallel(spread: Parallelism) -> tuple[str, ...]:
    """The flags for several GPUs; `--tp-size` counts those of all ranks."""
    flags = {
        "--tp-size": spread.tp * spread.dp,
        "--attn-dp-size": spread.dp,
        "--pp-size": spread.pp,
        "--ep-size": spread.moe_ep,
    }
    return tuple(f"{flag} {size}" for flag, size in flags.items() if size > 1)


def _priority_flags(section: SglangSection, flags: list[str]) -> list[str]:
    """Flags for policy `priority`: fcfs with priorities.

    SGLang 0.5.23 lists a policy `priority` but does not start with it.
    """
    switches = ["--enable-priority-scheduling"]
    if not section.enable_priority_scheduling:
        switches.append("--disable-priority-preemption")
    others = [flag for flag in flags[1:] if flag not in switches]
    return ["--schedule-policy fcfs", *others, *switches]


def _host_cache_flags(host_cache: HostCacheSection | None) -> list[str]:
    """Flags for host memory. The speed of loads is not a setting: the hardware decides it."""
    if host_cache is None:
        return []
    flags = [f"--{HOST_CACHE_SWITCH}"]
    if host_cache.size_gb is not None:
        flags.append(f"--{HOST_CACHE_OPTIONS['size_gb']} {host_cache.size_gb}")
    elif host_cache.capacity_tokens is None:
        ratio = DEFAULT_RATIO if host_cache.ratio is None else host_cache.ratio
        flags.append(f"--{HOST_CACHE_OPTIONS['ratio']} {ratio}")
    flags.append(f"--{HOST_CACHE_OPTIONS['write_policy']} {host_cache.write_policy}")
    return flags + _storage_flags(host_cache.storage)


def _storage_flags(storage: StorageSection | None) -> list[str]:
    """Flags for the store below it, but for the backend's name, which the scenario does not say."""
    if storage is None:
        return []
    given = storage.model_dump(exclude_defaults=True)
    extra = {key: given.pop(key) for key in STORAGE_EXTRA if key in given}
    flags = ['--hicache-storage-backend "$STORE"']
    flags += [f"{flag_of(f'hicache_storage_{key}')} {value}" for key, value in given.items()]
    if extra:
        flags.append(f"--hicache-storage-backend-extra-config '{json.dumps(extra)}'")
    return flags


def _host_cache_without_flag(host_cache: HostCacheSection | None) -> Iterator[tuple[str, str]]:
    if host_cache is None:
        return
    if host_cache.capacity_tokens is not None:
        # SGLang takes the size in GB or as a ratio to the pool, not in tokens.
        yield "host_cache.capacity_tokens", str(host_cache.capacity_tokens)
    threshold = host_cache.load_back_threshold_tokens
    if threshold != HostCacheSection.model_fields["load_back_threshold_tokens"].default:
        yield "host_cache.load_back_threshold_tokens", str(threshold)


def _rule_text(rule: BaseModel) -> str:
    return str(rule) if isinstance(rule, UserClass) else rule.model_dump_json()


def _without_flag(section: SglangSection) -> Iterator[tuple[str, str]]:
    """The settings that SGLang has no flag for, as (key, value)."""
    policy = section.schedule_policy
    if policy not in (*_SGLANG_POLICIES, "priority"):
        yield "schedule_policy", str(policy)
    if section.radix_eviction_policy not in _SGLANG_EVICTION:
        yield "radix_eviction_policy", str(section.radix_eviction_policy)
    takes_priorities = section.enable_priority_scheduling or policy == "priority"
    if section.retraction_policy == "priority" and not takes_priorities:
        yield "retraction_policy", "priority (SGLang: with --enable-priority-scheduling only)"
    if section.decode_first and section.enable_mixed_chunk:
        # With mixed batches SGLang's flag differs: it counts mixed steps as prefill steps.
        yield "decode_first", "true"
    if section.fairness is not None:
        yield "fairness", _rule_text(section.fairness)
    if isinstance(section.admission, PackConfig | UserClass):
        yield "admission", _rule_text(section.admission)
    if section.decode_max_requests is not None:
        yield "decode_max_requests", str(section.decode_max_requests)
    if section.batching == "static":
        for key in ("batching", "static_batch_size", "static_max_wait_ms"):
            yield key, str(getattr(section, key))


def speculative_flags(section: SglangKeys) -> list[str]:
    """The flags for speculative decoding; none without it."""
    settings = speculative_settings(section)
    if not settings:
        return []
    flags = [f"{flag_of(key)} {value}" for key, value in settings.items()]
    if section.speculative_algorithm == "NGRAM":
        return [*flags, f"--{NGRAM_BREADTH} 1"]
    flags.append("--speculative-eagle-topk 1")
    model = section.speculative_draft_model_path
    if model is None and section.speculative_algorithm in _NEEDS_MODEL:
        model = '"$DRAFT_MODEL"'
    return flags if model is None else [*flags, f"--speculative-draft-model-path {model}"]


def take_speculative(values: dict[str, Any], where: str) -> tuple[dict[str, Any], list[str]]:
    """Take the flags for speculative decoding out of the values of a command.

    Returns the section's keys, and notes for the user.

    Raises InputError: the drafts are trees.
    """
    given = {key: values.pop(key) for key in (*SPECULATIVE_OPTIONS, NGRAM_BREADTH) if key in values}
    breadth = given.pop(NGRAM_BREADTH, "10")
    if KEY not in given:
        return {}, []
    algorithm = given[KEY] = str(given[KEY]).upper()
    if algorithm == "NGRAM":
        given.pop("speculative_eagle_topk", None)
        if breadth != "1":
            raise InputError(
                f"{where}: --{NGRAM_BREADTH} {breadth}: only chains of drafts are simulated"
            )
    topk = given.get("speculative_eagle_topk", "1")
    if topk != "1":
        raise InputError(
            f"{where}: --speculative-eagle-topk {topk}: only chains of drafts are simulated"
        )
    notes = ["--speculative-algorithm: set acceptance to how many draft tokens the model accepts"]
    if algorithm != "NGRAM" and "speculative_num_steps" not in given:
        notes.append("--speculative-num-steps: SGLang chooses it by the model; here it is 3")
    if values.get("enable_mixed_chunk") and not mixes(algorithm):
        del values["enable_mixed_chunk"]
        notes.append(f"--enable-mixed-chunk: SGLang turns it off with {algorithm}")
    return given, notes


def sglang_in_role(launch: LaunchCommand, _section: SglangSection, role: str) -> LaunchCommand:
    if role == BOTH:
        return launch
    return replace(launch, flags=(*launch.flags, f"--disaggregation-mode {role}"))


def router_command(hosts: Mapping[str, Sequence[str]], routers: Mapping[str, str]) -> LaunchCommand:
    """The command of SGLang's router before servers that listen on their default ports.

    `hosts` are those of all servers by role, `routers` the kinds of the routers for servers of each
    role.
    """
    flags, without_flag = [], []
    if PREFILL in hosts:
        flags.append("--pd-disaggregation")
        flags += [f"--prefill http://{h}:{_SERVER_PORT} {_BOOTSTRAP_PORT}" for h in hosts[PREFILL]]
        flags += [f"--decode http://{host}:{_SERVER_PORT}" for host in hosts[DECODE]]
    else:
        flags.append(
            " ".join(["--worker-urls", *(f"http://{h}:{_SERVER_PORT}" for h in hosts[BOTH])])
        )
    for role, kind in routers.items():
        policy = _ROUTER_POLICIES.get(kind)
        if policy is None:
            without_flag.append(f"router={kind}" if role == BOTH else f"{role} router={kind}")
        else:
            flags.append(f"--policy {policy}" if role == BOTH else f"--{role}-policy {policy}")
    program = "python -m sglang_router.launch_router"
    return LaunchCommand("sglang_router 0.3.2", program, (), tuple(flags), tuple(without_flag))
