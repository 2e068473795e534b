"""The key `kv_cache_groups`: what layers keep, if not all of them keep KV of all tokens.

The groups of a known model, and the size of their pool, are those of vLLM 0.19.0 and 0.33.0:
`_get_kv_cache_groups_uniform_page_size` and `get_kv_cache_config_from_groups`
(v1/core/kv_cache_utils.py, from 0.33.0 on kv_cache_planning.py).
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, Self

from pydantic import Field, model_validator

from sim.core.declared import Count
from sim.core.errors import InputError
from sim.family.section import MemoryForKv
from sim.validation import KeysError, StrictModel
from sim.vllm.cache.single_type_manager import CHUNKED, FULL, MAMBA, WINDOW, GroupKind, KVCacheSpec
from sim.vllm.scheduler.step_limits import EAGLE_METHODS
from sim.vllm.section.speculation import SpeculativeConfig
from sim.vllm.version_rules import VERSIONS

if TYPE_CHECKING:
    from sim.latency.shapes import Attention, ModelShape


def groups_of_model(model: "ModelShape") -> list[KVCacheSpec]:
    """The groups into which a model's layers fall, all with equally many layers.

    Example: 10 layers with full attention and 52 with windows make one group of 10 and six groups
    of at most 10.

    Raises InputError: layers keep states, or different amounts of KV.
    """
    counts = _layer_counts(model)
    size = _layers_of_group(counts)
    return [group for group, count in counts.items() for _ in range(-(-count // size))]


def block_bytes(model: "ModelShape", tp: int, block_size: int) -> int:
    """Bytes of a block on each of `tp` GPUs: the KV of its tokens in all layers of a group.

    Raises InputError: layers keep states, or different amounts of KV.
    """
    element_bytes = model.kv_element_bytes
    of_layers = {layer.attention.kv_bytes(element_bytes, tp) for layer in model.layers}
    num_layers = _layers_of_group(_layer_counts(model))
    return num_layers * block_size * max(of_layers)


def _layer_counts(model: "ModelShape") -> dict[KVCacheSpec, int]:
    """How many layers keep what."""
    reason = ""
    if any(layer.attention.state_bytes for layer in model.layers):
        reason = f"{model.name} has layers with states"
    elif len({layer.attention.kv_bytes(model.kv_element_bytes, 1) for layer in model.layers}) > 1:
        reason = f"layers of {model.name} keep different amounts of KV"
    if reason:
        reason = f"model is not possible: {reason}: give the groups as a list"
        raise InputError(reason, key=("scheduler", _KEY))
    counts: dict[KVCacheSpec, int] = {}
    for layer in model.layers:
        group = _group_of(layer.attention)
        counts[group] = counts.get(group, 0) + layer.count
    return counts


def _group_of(attention: "Attention") -> KVCacheSpec:
    if attention.window is None:
        return KVCacheSpec(FULL)
    return KVCacheSpec(CHUNKED if attention.is_chunked else WINDOW, attention.window)


def _layers_of_group(counts: dict[KVCacheSpec, int]) -> int:
    """Layers of a group: as many as the rarest kind has, or the most common if hardly more.

    Example: of 10 and 52 layers, groups of 10; of 10 and 14, groups of 14.
    """
    fewest, most = min(counts.values()), max(counts.values())
    return most if most < fewest * 1.5 else fewest


_KEY = "kv_cache_groups"
_ALIGNMENT = "prefill_checkpoint_alignment"
_INTERVAL = "prefix_cache_retention_interval"
# Layers of which not every block is cached.
_SPARSE = (WINDOW, MAMBA)
DRAFTER = "has_drafter"
SIZE_KEYS = {WINDOW: "sliding_window", CHUNKED: "attention_chunk_size"}


class KVCacheGroup(StrictModel):
    """A group of layers that share a block table; names are those of vLLM's cache specs."""

    kind: GroupKind
    """`full_attention`: KV of all tokens is kept. `sliding_window`: that of the last tokens.
    `chunked_local_attention`: that of the tokens since the last multiple of a chunk. `mamba`: one
    state, however many tokens there are (state-space layers and linear attention)."""
    sliding_window: Count | None = None
    """Tokens that a token attends to, itself included, with kind `sliding_window`. Unit: tokens."""
    attention_chunk_size: Count | None = None
    """Tokens of a chunk, with kind `chunked_local_attention`. Unit: tokens."""
    prefill_checkpoint_alignment: Count | None = None
    """With kind `mamba`: the kernel can write a state inside a chunk, after a multiple of this many
    tokens of it. 1 with Mamba 2. Without it: it cannot. From version 0.33.0 on. Unit: tokens."""
    has_drafter: bool = False
    """The layers of an EAGLE or MTP drafter are in it (methods `eagle`, `eagle3` and `mtp`). vLLM
    0.33.0 marks the groups that have some (`is_eagle_group`), and with a KV connector the last
    block that is found of them is computed again. If no group says so, that of all groups is."""
    count: Count = 1
    """Groups of this kind. Unit: groups."""

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        needed = SIZE_KEYS.get(self.kind)
        for key in SIZE_KEYS.values():
            is_given = getattr(self, key) is not None
            if is_given != (key == needed):
                verb = "has no" if is_given else "needs"
                raise KeysError(f"kind {self.kind} {verb} {key}", key, "kind")
        if self.prefill_checkpoint_alignment is not None and self.kind != MAMBA:
            raise KeysError(f"kind {self.kind} has no {_ALIGNMENT}", _ALIGNMENT, "kind")
        if self.has_drafter and self.kind == MAMBA:
            raise KeysError(f"kind {MAMBA}: no drafter has such layers", DRAFTER, "kind")
        return self

    @property
    def size(self) -> int:
        return self.sliding_window or self.attention_chunk_size or 0


KVCacheGroups = Annotated[list[KVCacheGroup], Field(min_length=1, max_length=256)]


class GroupKeys(Protocol):
    """The keys of a scheduler that groups of layers depend on."""

    @property
    def version(self) -> str: ...
    @property
    def block_size(self) -> int: ...
    @property
    def kv_cache_groups(self) -> list[KVCacheGroup] | Literal["model"] | None: ...
    @property
    def prefix_cache_retention_interval(self) -> int | None: ...
    @property
    def enable_prefix_caching(self) -> bool: ...
    @property
    def enable_chunked_prefill(self) -> bool: ...
    @property
    def max_num_batched_tokens(self) -> int: ...
    @property
    def speculative_config(self) -> SpeculativeConfig | None: ...
    @property
    def schedules_ahead(self) -> bool: ...
    @property
    def reserves_full_isl(self) -> bool: ...


def check_groups(section: GroupKeys) -> None:
    """Refuse what is not simulated together with groups.

    Raises KeysError: with the keys.
    """
    interval = section.prefix_cache_retention_interval
    rules = VERSIONS[section.version]
    if interval != 0 and section.kv_cache_groups is None:
        raise KeysError(f"{_INTERVAL} needs {_KEY}", _INTERVAL)
    if interval and not any(kind in _SPARSE for kind in _kinds(section)):
        raise KeysError(f"{_INTERVAL} needs a group of kind {WINDOW} or {MAMBA}", _INTERVAL, _KEY)
    if interval and interval % section.block_size:
        raise KeysError(
            f"{interval} is no multiple of block_size {section.block_size}", _INTERVAL, "block_size"
        )
    if section.kv_cache_groups is None:
        return
    if not rules.speculates:
        raise KeysError(f"{_KEY} is not simulated with version {section.version}", _KEY, "version")
    if section.kv_cache_groups != "model":
        _check_states(section, section.kv_cache_groups)
    _check_drafts(section)


def _kinds(section: GroupKeys) -> list[str]:
    """The kinds of the groups, as far as they are known without the model."""
    groups = section.kv_cache_groups
    return [WINDOW] if groups == "model" else [group.kind for group in groups or ()]


def has_drafter(groups: list[KVCacheGroup] | Literal["model"] | None) -> bool:
    """Whether some group says that it has a drafter's layers."""
    return isinstance(groups, list) and any(group.has_drafter for group in groups)


def refused_chunks(groups: Sequence[KVCacheGroup | KVCacheSpec], method: str) -> str | None:
    """Why vLLM refuses groups beside a KV connector with drafts of a method; None: it does not.

    The last block of the drafter's groups is left out, and chunked attention cannot do that.
    """
    drafters = [group for group in groups if group.has_drafter] or groups
    if all(group.kind != CHUNKED for group in drafters):
        return None
    return (
        f"vLLM refuses kind {CHUNKED} with drafts of method {method} and a KV connector, unless"
        f" another group has {DRAFTER}: ChunkedLocalAttentionManager,"
        " v1/core/single_type_kv_cache_manager.py"
    )


def _check_drafts(section: GroupKeys) -> None:
    """Refuse groups that do not go with drafts."""
    drafts, kinds = section.speculative_config, _kinds(section)
    if has_drafter(section.kv_cache_groups):
        if not VERSIONS[section.version].marks_drafters:
            raise KeysError(f"vLLM {section.version} has no {DRAFTER}", _KEY, "version")
        if drafts is None or drafts.method not in EAGLE_METHODS:
            methods = ", ".join(EAGLE_METHODS)
            reason = f"{DRAFTER} needs speculative_config with a method of {methods}"
            raise KeysError(reason, _KEY, "speculative_config")
    if drafts is None:
        return
    rules, caches = VERSIONS[section.version], section.enable_prefix_caching
    if MAMBA in kinds and caches and not rules.takes_back_states:
        raise KeysError(
            f"vLLM {section.version} fails with kind {MAMBA}, drafts and enable_prefix_caching:"
            " when drafts are rejected, allocate_new_blocks of MambaManager"
            " (v1/core/single_type_kv_cache_manager.py) finds more states than it expects",
            _KEY,
            "speculative_config",
        )
    drops_blocks = not rules.hashes_ahead and caches
    if CHUNKED in kinds and drops_blocks and drafts.method in EAGLE_METHODS:
        raise KeysError(
            f"vLLM {section.version} has no prefix caching with kind {CHUNKED} and drafts of method"
            f" {drafts.method}",
            _KEY,
            "speculative_config",
        )


def _check_states(section: GroupKeys, groups: "list[KVCacheGroup]") -> None:
    """Refuse what vLLM refuses with states that are cached."""
    states = [group for group in groups if group.kind == MAMBA]
    if not states or not section.enable_prefix_caching:
        return
    rules, size = VERSIONS[section.version], section.block_size
    if not section.enable_chunked_prefill:
        raise KeysError(
            f"kind {MAMBA} with enable_prefix_caching needs enable_chunked_prefill",
            "enable_chunked_prefill",
            _KEY,
        )
    if rules.stops_at_junctions:
        drafts, most = section.speculative_config, section.max_num_batched_tokens
        if drafts is not None and drafts.method == "draft_model" and most == size:
            # A row of a draft model takes a token of the budget: no chunk ends where a block does.
            raise KeysError(
                f"max_num_batched_tokens {most} leaves less than block_size {size} beside the token"
                " of the draft model: vLLM would never compute a prompt",
                "max_num_batched_tokens",
                "block_size",
            )
        return
    if any(group.prefill_checkpoint_alignment for group in states):
        raise KeysError(f"vLLM {section.version} has no {_ALIGNMENT}", _KEY, "version")
    for key in ("max_num_batched_tokens", "long_prefill_token_threshold"):
        most = getattr(section, key)
        if 0 < most < size:
            raise KeysError(
                f"{key} {most} is less than block_size {size}, which kind {MAMBA} of vLLM"
                f" {section.version} needs",
                key,
                "block_size",
            )


def cache_groups(section: GroupKeys) -> tuple[KVCacheSpec, ...]:
    """The groups of the scenario; none: all layers keep KV of all tokens."""
    groups = section.kv_cache_groups
    if groups == "model":
        raise InputError("model needs the scenario's model", key=("scheduler", _KEY))
    return tuple(
        KVCacheSpec(
            group.kind, group.size, group.prefill_checkpoint_alignment or 0, group.has_drafter
        )
        for group in groups or ()
        for _ in range(group.count)
    )


def groups_for_model(model: "ModelShape | None") -> list[KVCacheGroup] | None:
    """The key's value that `model` stands for; None: all layers keep KV of all tokens.

    Raises InputError: no model is named, or its groups cannot be derived.
    """
    if model is None:
        raise InputError("model needs the scenario's model", key=("scheduler", _KEY))
    groups = groups_of_model(model)
    if {group.kind for group in groups} == {FULL}:
        return None
    return [
        KVCacheGroup(
            kind=group.kind,
            sliding_window=group.size if group.kind == WINDOW else None,
            attention_chunk_size=group.size if group.kind == CHUNKED else None,
            count=count,
        )
        for group, count in Counter(groups).items()
    ]


def tokens_of_groups(
    section: GroupKeys, model: "ModelShape | None", free: MemoryForKv
) -> int | None:
    """KV tokens of a pool of blocks; see `ServerSection.tokens_in`."""
    if section.kv_cache_groups is None:
        return None
    key = ("scheduler", "num_gpu_blocks_override")
    if section.kv_cache_groups != "model":
        raise InputError(f"is required with a list of {_KEY}", key=key)
    if free.num_stages > 1:
        raise InputError(f"is required with {_KEY} and latency.pp above 1", key=key)
    if groups_for_model(model) is None or model is None:
        return None
    size = section.block_size
    return int(free.num_bytes // block_bytes(model, free.tp, size)) * size


def longest_that_fits(section: GroupKeys, pool_tokens: int, num_stages: int = 1) -> int:
    """The longest request for which the pool has room, as vLLM finds it with `max_model_len: -1`.

    A request needs as many blocks as each group holds for it at most (vLLM 0.33.0:
    `_estimate_max_model_len_from_groups` of v1/core/kv_cache_planning.py).
    """
    groups, size = cache_groups(section), section.block_size
    if not groups:
        return pool_tokens
    num_steps = 1
    if VERSIONS[section.version].keeps_blocks_in_flight:
        num_steps = num_stages + section.schedules_ahead
    num_chunks = num_stages + section.schedules_ahead if num_stages > 1 else 1
    num_in_flight = num_steps * section.max_num_batched_tokens
    drafts = section.speculative_config
    num_drafts = 0 if drafts is None else drafts.num_speculative_tokens
    if section.reserves_full_isl and not VERSIONS[section.version].caps_admission:
        # Admission asks for the blocks of the whole prompt, not only of what a step computes.
        num_in_flight = 1 << 40

    def num_blocks(longest: int) -> int:
        caches = section.enable_prefix_caching
        return sum(
            group.most_blocks(
                num_in_flight,
                longest,
                size,
                caches=caches,
                num_chunks=num_chunks,
                num_drafts=num_drafts,
            )
            for group in groups
        )

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
