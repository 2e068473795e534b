"""Draws groups of layers for a case: windows and chunks of all sizes beside full attention."""

import random

from oracle.vllm.load import Config

_WINDOW = "sliding_window"


def draw_groups(
    rng: random.Random, config: Config, *, has_interval: bool, offloads: bool = False
) -> Config:
    """The same server with groups of layers. Its pool is often just enough.

    `offloads`: KV is kept in CPU memory, too: of states only with prefix caching.
    """
    size = config["block_size"]
    window, other = sorted(rng.sample(_sizes(size), 2))
    full = {"kind": "full_attention"}
    some = {"kind": "sliding_window", "sliding_window": window}
    wide = {"kind": "sliding_window", "sliding_window": other}
    chunk = {"kind": "chunked_local_attention", "attention_chunk_size": max(other, 2)}
    state: Config = {"kind": "mamba"}
    if has_interval and rng.random() < 0.6:
        state["prefill_checkpoint_alignment"] = rng.choice([1, 1, size])
    choices = [
        [some],
        [full, some],
        [some, full],
        [full, some | {"count": 2}],
        [full | {"count": 2}, some | {"count": 5}],
        [full, some, wide],
        [some, wide],
    ]
    has_drafts, caches = "speculation" in config, config["enable_prefix_caching"]
    drops = has_drafts and (not has_interval or "role" in config)
    has_eagle = config.get("speculation", {}).get("method") in ("eagle", "mtp")
    if not drops:
        choices += [[full, chunk], [full, chunk | {"count": 3}]]
        choices += [] if has_eagle and offloads else [[chunk]]
    if (has_interval or not (has_drafts and caches)) and (caches or not offloads):
        choices += [
            *([] if has_eagle and offloads else [[state]]),
            [full, state],
            [state, full],
            [full, state | {"count": 3}],
            [full, state | {"count": 2}, some],
        ]
    groups = rng.choice(choices)
    if has_eagle and (offloads or ("role" in config and has_interval and rng.random() < 0.5)):
        groups = _with_drafter(rng, groups)
    if config["block_size"] <= config.get("speculation", {}).get("num_speculative_tokens", 0):
        # vLLM asserts that a checkpoint is a place in the prompt, not one among drafts.
        groups = [_without_checkpoints(group) for group in groups]
    changed: Config = {"kv_cache_groups": groups}
    is_sparse = any(group["kind"] in ("sliding_window", "mamba") for group in groups)
    if has_interval and config["enable_prefix_caching"] and is_sparse:
        changed["prefix_cache_retention_interval"] = rng.choice(
            [0, 0, 0, None, size, 2 * size, 5 * size]
        )
    config = config | changed
    if any(group["kind"] == "mamba" for group in groups) and config["enable_prefix_caching"]:
        config |= _for_states(config)
    needed = sum(_most_blocks(config, group) * group.get("count", 1) for group in groups)
    room = rng.choice([needed, needed, needed + 3, needed * 2, needed * 4])
    return config | {"num_gpu_blocks": room + 1}


def _without_checkpoints(group: Config) -> Config:
    return {key: value for key, value in group.items() if key != "prefill_checkpoint_alignment"}


def _with_drafter(rng: random.Random, groups: list[Config]) -> list[Config]:
    """The drafter's layers are in one of the groups; vLLM has no drafters with states."""
    places = [i for i, group in enumerate(groups) if group["kind"] in ("full_attention", _WINDOW)]
    place = rng.choice(places) if places else -1
    return [
        group | {"has_drafter": True} if i == place else group for i, group in enumerate(groups)
    ]


def _sizes(block_size: int) -> list[int]:
    several = [block_size - 1, block_size, block_size + 1, 2 * block_size, 3 * block_size + 2]
    return sorted({1, 2, 5, 12, 20, 33, 50, 100, *several} - {0})


def _for_states(config: Config) -> Config:
    """What vLLM demands of a server that caches states."""
    changed: Config = {"enable_chunked_prefill": True}
    if config["version"] == "0.19.0":
        for key in ("max_num_batched_tokens", "long_prefill_token_threshold"):
            if config[key]:
                changed[key] = max(config[key], config["block_size"])
    return changed


def _most_blocks(config: Config, group: Config) -> int:
    """As vLLM sizes its pool: `max_admission_blocks_per_request` of each spec.

    In a pipeline it counts too few states: with so few it may preempt the same chunks for ever.
    """
    size, longest = config["block_size"], config["max_model_len"]
    num_steps = config.get("stages", 1) + config["async_scheduling"]
    in_flight = num_steps * config["max_num_batched_tokens"]
    if config["version"] == "0.19.0" and config["scheduler_reserve_full_isl"]:
        in_flight = longest  # it would wait for ever for the blocks of a longer prompt
    if group["kind"] == "sliding_window":
        return -(-min(group["sliding_window"] - 1 + in_flight, longest) // size) + 1
    if group["kind"] == "mamba":
        num_drafts = config.get("speculation", {}).get("num_speculative_tokens", 0)
        num_states = 1 + ("prefill_checkpoint_alignment" in group)
        num_chunks = num_steps if config.get("stages", 1) > 1 else 1
        return num_drafts + (1 + num_states * num_chunks if config["enable_prefix_caching"] else 1)
    if group["kind"] == "chunked_local_attention":
        return -(-min(group["attention_chunk_size"] + in_flight, longest) // size)
    return -(-longest // size)
