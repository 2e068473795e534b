"""The key `kv_cache_groups`: what the layers of a model keep, if not KV of all tokens in all of them."""

from typing import TYPE_CHECKING, Self

from pydantic import model_validator

from sim.strict_model import Count, KeysError, StrictModel
from sim.vllm.cache.groups.group import CHUNKED, WINDOW, CacheGroup, GroupKind
from sim.vllm.version_rules import NEWEST, VERSIONS

if TYPE_CHECKING:
    from sim.vllm.section import VllmSection

_KEY = "kv_cache_groups"
_INTERVAL = "prefix_cache_retention_interval"
# Layers of which not every block is cached.
_SPARSE = (WINDOW,)
_SIZE_KEYS = {WINDOW: "sliding_window", CHUNKED: "attention_chunk_size"}


class KVCacheGroup(StrictModel):
    """A group of layers that share a block table; names are those of vLLM's cache specs."""

    kind: GroupKind
    """`full_attention`: KV of all tokens is kept. `sliding_window`: that of the last tokens.
    `chunked_local_attention`: that of the tokens since the last multiple of a chunk."""
    sliding_window: Count | None = None
    """Tokens that a token attends to, itself included, with kind `sliding_window`. Unit: tokens."""
    attention_chunk_size: Count | None = None
    """Tokens of a chunk, with kind `chunked_local_attention`. Unit: tokens."""
    count: Count = 1
    """Groups of this kind. Unit: groups."""

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        needed = _SIZE_KEYS.get(self.kind)
        for key in _SIZE_KEYS.values():
            is_given = getattr(self, key) is not None
            if is_given != (key == needed):
                verb = "has no" if is_given else "needs"
                raise KeysError(f"kind {self.kind} {verb} {key}", key, "kind")
        return self

    @property
    def size(self) -> int:
        return self.sliding_window or self.attention_chunk_size or 0


def check_groups(section: "VllmSection") -> None:
    """Refuse what is not simulated together with groups.

    Raises:
        KeysError: with the keys.
    """
    interval = section.prefix_cache_retention_interval
    rules = VERSIONS[section.version]
    if interval != 0 and not rules.has_retention_interval:
        raise KeysError(f"vLLM {section.version} has no {_INTERVAL}", _INTERVAL, "version")
    if interval != 0 and section.kv_cache_groups is None:
        raise KeysError(f"{_INTERVAL} needs {_KEY}", _INTERVAL)
    if interval and not any(group.kind in _SPARSE for group in section.kv_cache_groups or ()):
        raise KeysError(f"{_INTERVAL} needs a group of kind {WINDOW}", _INTERVAL, _KEY)
    if interval and interval % section.block_size:
        raise KeysError(
            f"{interval} is no multiple of block_size {section.block_size}", _INTERVAL, "block_size"
        )
    if section.kv_cache_groups is None:
        return
    if not rules.speculates:
        raise KeysError(f"{_KEY} is not simulated with version {section.version}", _KEY, "version")
    if section.speculative_config is not None:
        raise KeysError(
            f"{_KEY} is not simulated together with speculative_config", _KEY, "speculative_config"
        )


def cache_groups(section: "VllmSection") -> tuple[CacheGroup, ...]:
    """The groups of the scenario; none: all layers keep KV of all tokens."""
    return tuple(
        CacheGroup(group.kind, group.size)
        for group in section.kv_cache_groups or ()
        for _ in range(group.count)
    )


def longest_that_fits(section: "VllmSection", pool_tokens: int) -> int:
    """The longest request for which the pool has room, as vLLM finds it with `max_model_len: -1`.

    A request needs as many blocks as each group holds for it at most (vLLM 0.33.0:
    `_estimate_max_model_len_from_groups` of v1/core/kv_cache_planning.py).
    """
    groups, size = cache_groups(section), section.block_size
    if not groups:
        return pool_tokens
    num_steps = 1 + (section.schedules_ahead and VERSIONS[section.version].keeps_blocks_in_flight)
    num_in_flight = num_steps * section.max_num_batched_tokens

    def num_blocks(longest: int) -> int:
        return sum(group.most_blocks(num_in_flight, longest, size) for group in groups)

    fits, too_long = 0, 2 * (pool_tokens // size + 2) * max(group.size for group in groups) + 2
    too_long = max(too_long, pool_tokens + size + 1)
    while num_blocks(too_long) <= pool_tokens // size:
        if too_long > 1 << 31:
            return 1 << 31
        too_long *= 2
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if num_blocks(middle) <= pool_tokens // size:
            fits = middle
        else:
            too_long = middle
    return fits
