"""The features of each scheduler family, each with the smallest settings that turn it on.

A page of the reference has a table of them against each other, and a test builds and runs a
scenario for every pair.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

Settings = Mapping[str, Any]


class Feature(NamedTuple):
    """One feature.

    Attributes:
        name: in the table.
        settings: what turns it on: values by key path of a scenario.
        in_case: whether a kept case of the engine's own decisions has it, by the case's `config`.
        choice: features of one choice exclude each other, as one server has one drafter; empty: it
            is no such choice.
        role: the servers' role, if that is the feature. Other features are then those of the
            servers of this role alone, unless they are `shared`.
        shared: prefill and decode servers have it together, as layers of their model.
    """

    name: str
    settings: Settings
    in_case: Callable[[Settings], object]
    choice: str = ""
    role: str = ""
    shared: bool = False


# The smallest server. Models and GPUs are named for what they say of stages and transfers.
_BASE: dict[str, Any] = {
    "name": "features",
    "model": "qwen2.5-0.5b",
    "hardware": "h100-sxm",
    "latency": {"kind": "roofline", "mfu": 0.5, "bandwidth_efficiency": 0.5, "host_s": 0.001},
    "workload": {
        "kind": "synthetic",
        "num_requests": 30,
        "arrivals": {"kind": "poisson", "rate_rps": 150},
        "prompt_tokens": {"kind": "uniform", "min": 20, "max": 300},
        "output_tokens": {"kind": "uniform", "min": 2, "max": 40},
        "prefixes": {
            "groups": 4,
            "tokens": {"kind": "constant", "value": 64},
            "share_probability": 0.7,
        },
    },
}
_SCHEDULERS: dict[str, dict[str, Any]] = {
    "sglang": {
        "max_total_tokens": 2048,
        "max_running_requests": 16,
        "chunked_prefill_size": 256,
        "context_length": 1024,
    },
    "vllm": {
        "family": "vllm",
        "num_gpu_blocks_override": 160,
        "max_num_seqs": 16,
        "max_num_batched_tokens": 256,
        "max_model_len": 1024,
    },
}
_ACCEPTANCE = {"acceptance.by_position": [0.8, 0.6]}
_DRAFTER = {**_ACCEPTANCE, "latency.drafter_share": 0.1}
_STAGES = {"latency.pp": 2}
_RANKS = {
    "latency": {
        "kind": "linear",
        "step_s": 0.002,
        "per_prefill_token_s": 1e-5,
        "per_decode_request_s": 1e-5,
        "per_context_token_s": 1e-8,
        "dp": 2,
    }
}
# The only kind that knows stages and ranks.
_STAGES_AND_RANKS = {"kind": "aiconfigurator", "system": "h100_sxm", "pp": 2, "dp": 2}


def scenario_with(family: str, *features: Feature) -> dict[str, Any]:
    """The smallest scenario with these features."""
    scenario: dict[str, Any] = {**_BASE, "scheduler": _SCHEDULERS[family]}
    role = next((feature.role for feature in features if feature.role), "")
    for feature in features:
        for path, value in feature.settings.items():
            is_own = role and not feature.shared and path.startswith(("scheduler.", "latency"))
            *parents, key = (f"pools.{role}.{path}" if is_own else path).split(".")
            section = scenario
            for parent in parents:
                section[parent] = section = dict(section.get(parent, {}))
            section[key] = _joined(section.get(key), value)
    if all(any(path in each.settings for each in features) for path in (*_STAGES, *_RANKS)):
        scenario["latency"] = _STAGES_AND_RANKS
    return scenario


def pairs(family: str) -> Iterator[tuple[Feature, ...]]:
    """Each feature alone, and each two that one server can have."""
    for index, feature in enumerate(FEATURES[family]):
        yield (feature,)
        for other in FEATURES[family][:index]:
            if not feature.choice or feature.choice != other.choice:
                yield other, feature


def _joined(old: Any, value: Any) -> Any:
    """Sections and lists get the keys and items of both features."""
    if isinstance(old, dict) and isinstance(value, dict) and "kind" not in value:
        return {**old, **value}
    if isinstance(old, list) and isinstance(value, list) and isinstance(value[0], dict):
        return [*old, *(item for item in value if item not in old)]
    return value


def _scheduler(**settings: Any) -> dict[str, Any]:
    return {f"scheduler.{key}": value for key, value in settings.items()}


def _sglang_drafts(algorithm: str) -> Feature:
    steps = {} if algorithm == "NGRAM" else {"speculative_num_steps": 2}
    settings = _scheduler(speculative_algorithm=algorithm, speculative_num_draft_tokens=3, **steps)
    names = {"EAGLE": "drafts: layer", "STANDALONE": "drafts: model", "NGRAM": "drafts: n-grams"}

    def in_case(case: Settings) -> bool:
        drafts = case.get("speculation")
        kind = drafts and {"EAGLE3": "EAGLE", "NEXTN": "EAGLE"}.get(
            drafts["algorithm"], drafts["algorithm"]
        )
        return bool(kind == algorithm)

    more = _ACCEPTANCE if algorithm == "NGRAM" else _DRAFTER
    return Feature(names[algorithm], settings | more, in_case, "drafts", shared=True)


def _has(key: str) -> Callable[[Settings], object]:
    return lambda case: case.get(key)


def _never(_: Settings) -> bool:
    """The engine itself does not have it."""
    return False


def _servers_of(role: str) -> Feature:
    pools = {f"pools.{each}.role": each for each in ("prefill", "decode")}

    def in_case(case: Settings) -> bool:
        return role in (case.get("disaggregation_mode"), case.get("role"))

    settings = {**pools, "transfer.bandwidth_gb_s": 50}
    return Feature(f"{role} servers", settings, in_case, "role", role)


SGLANG = (
    *map(_sglang_drafts, ("EAGLE", "STANDALONE", "NGRAM")),
    Feature("windows", _scheduler(sliding_window=64), _has("sliding_window"), shared=True),
    Feature(
        "states", _scheduler(max_mamba_cache_size=120), _has("max_mamba_cache_size"), shared=True
    ),
    Feature(
        "host memory",
        # On a decode server it needs the cache above it, which is off there unless asked for.
        _scheduler(
            host_cache={"ratio": 2, "load_tokens_per_s": 1e6},
            disaggregation_decode_enable_radix_cache=True,
        ),
        _has("copy_s_per_token"),
    ),
    Feature(
        "storage",
        {
            "store": {"read_tokens_per_s": 1e6, "write_tokens_per_s": 1e6},
            **_scheduler(
                host_cache={
                    "ratio": 2,
                    "load_tokens_per_s": 1e6,
                    "storage": {"prefetch_threshold": 16},
                },
                disaggregation_decode_enable_radix_cache=True,
            ),
        },
        _has("store"),
    ),
    _servers_of("prefill"),
    _servers_of("decode"),
    Feature("stages", _STAGES, lambda case: case.get("stages", 1) > 1),
    Feature("ranks", _RANKS, lambda case: case.get("ranks", 1) > 1),
    Feature("mixed steps", _scheduler(enable_mixed_chunk=True), _has("enable_mixed_chunk")),
    Feature(
        "no overlap",
        _scheduler(disable_overlap_schedule=True),
        lambda case: not case.get("enable_overlap"),
    ),
    Feature("no cache", _scheduler(disable_radix_cache=True), _has("disable_radix_cache")),
    Feature(
        "pages of 16",
        _scheduler(page_size=16),
        lambda case: case.get("page_size", 1) > 1,
        shared=True,
    ),
    Feature(
        "priorities",
        _scheduler(enable_priority_scheduling=True),
        _has("enable_priority_scheduling"),
    ),
    Feature(
        "prefill delayer",
        _scheduler(prefill_delayer={"max_delay_passes": 3}),
        _has("prefill_delayer"),
    ),
    Feature(
        "decode interval",
        _scheduler(prefill_decode_interval=2),
        _has("prefill_decode_interval"),
    ),
    Feature("free slots", _scheduler(min_free_slots_delay=3), _has("min_free_slots_delay")),
    Feature("queue limit", _scheduler(max_queued_requests=4), _has("max_queued_requests")),
    Feature(
        "turns",
        _scheduler(decode_max_requests=4, disable_overlap_schedule=True),
        _never,
    ),
    Feature("static batches", _scheduler(batching="static"), _never),
)


def _vllm_drafts(name: str, method: str, methods: tuple[str, ...]) -> Feature:
    drafts = {"method": method, "num_speculative_tokens": 2}
    # With n-grams it is off unless it is asked for, and stages need it.
    settings = _scheduler(speculative_config=drafts, async_scheduling=True)

    def in_case(case: Settings) -> bool:
        drafts = case.get("speculation")
        return bool(drafts and drafts["method"] in methods)

    more = _ACCEPTANCE if method == "ngram" else _DRAFTER
    return Feature(name, settings | more, in_case, "drafts", shared=True)


def _vllm_groups(name: str, kind: str, **group: Any) -> Feature:
    groups = [{"kind": "full_attention"}, {"kind": kind, **group}]

    def in_case(case: Settings) -> bool:
        return any(each["kind"] == kind for each in case.get("kv_cache_groups") or ())

    return Feature(name, _scheduler(kv_cache_groups=groups), in_case, shared=True)


VLLM = (
    _vllm_drafts("drafts: layer", "eagle", ("eagle", "eagle3", "mtp")),
    _vllm_drafts("drafts: model", "draft_model", ("draft_model",)),
    _vllm_drafts("drafts: n-grams", "ngram", ("ngram",)),
    _vllm_groups("windows", "sliding_window", sliding_window=64),
    _vllm_groups("chunked attention", "chunked_local_attention", attention_chunk_size=64),
    _vllm_groups("states", "mamba"),
    Feature(
        "CPU memory",
        _scheduler(kv_offloading={"capacity_tokens": 8000, "load_tokens_per_s": 1e6}),
        _has("offload"),
    ),
    Feature(
        "CPU memory: simple connector",
        _scheduler(
            kv_offloading={
                "capacity_tokens": 8000,
                "load_tokens_per_s": 1e6,
                "kv_connector": "SimpleCPUOffloadConnector",
            }
        ),
        lambda case: "kv_connector" in case.get("offload", {}),
    ),
    Feature(
        "storage",
        {
            "store": {"read_tokens_per_s": 1e6, "write_tokens_per_s": 1e6},
            **_scheduler(
                kv_offloading={
                    "capacity_tokens": 8000,
                    "load_tokens_per_s": 1e6,
                    "secondary_tiers": [{"type": "fs"}],
                }
            ),
        },
        lambda case: "tier" in case.get("offload", {}),
    ),
    _servers_of("prefill"),
    _servers_of("decode"),
    Feature("stages", _STAGES, lambda case: case.get("stages", 1) > 1),
    Feature("ranks", _RANKS, lambda case: case.get("ranks", 1) > 1),
    Feature(
        "no async scheduling",
        _scheduler(async_scheduling=False),
        lambda case: not case.get("async_scheduling"),
    ),
    Feature(
        "no prefix caching",
        _scheduler(enable_prefix_caching=False),
        lambda case: not case.get("enable_prefix_caching", True),
    ),
    Feature(
        "whole prompts",
        _scheduler(enable_chunked_prefill=False, max_num_batched_tokens=1024),
        lambda case: not case.get("enable_chunked_prefill", True),
    ),
    Feature(
        "priorities",
        _scheduler(scheduling_policy="priority"),
        lambda case: case.get("policy") == "priority",
    ),
    Feature(
        "prefill interval",
        _scheduler(prefill_schedule_interval=3),
        lambda case: case.get("prefill_schedule_interval", 1) > 1,
    ),
    Feature("watermark", _scheduler(watermark=0.1), _has("watermark")),
    Feature(
        "queue limit",
        _scheduler(max_num_queued_reqs=8),
        lambda case: case.get("max_num_queued_reqs") is not None,
    ),
)
FEATURES = {"sglang": SGLANG, "vllm": VLLM}
