"""The `host_cache` key of the scheduler section: host memory for evicted KV."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.core.errors import InputError
from sim.core.units import NS_PER_S
from sim.latency.kv_memory import kv_bytes
from sim.latency.wrappers import LoadTimes
from sim.sglang.cache.settings import HostCacheSettings
from sim.sglang.section.storage import StorageSection
from sim.validation import KeysError, StrictModel

if TYPE_CHECKING:
    from sim.latency.shapes import ModelShape

# SGLang 0.5.23's default of `--hicache-ratio`.
DEFAULT_RATIO = 2.0
_SIZES = ("ratio", "capacity_tokens", "size_gb")
# Without a model; see the keys.
_WINDOW_SHARE = 0.5
_STATE_TOKENS = 100.0
# SGLang 0.5.23's `--hicache-write-policy`: how many requests use a node before it is copied.
_USES_TO_COPY = {"write_through": 1, "write_through_selective": 2, "write_back": None}


class HostCacheSection(StrictModel):
    """Host memory that keeps evicted KV.

    Either `load_bandwidth_gb_s` or `load_tokens_per_s` is required.
    docs/explanation/host-memory.md explains the rules.
    """

    capacity_tokens: Annotated[int, Field(ge=1, le=2**40)] | None = None
    """Size, floored to whole pages. At least `page_size`. Not together with `ratio` or `size_gb`.
    Unit: tokens."""
    ratio: Annotated[float, Field(gt=0, le=10_000)] | None = None
    """Size as a multiple of the pool; SGLang adds a page. 2.0 if no size is given. Unit: factor."""
    size_gb: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """Size in bytes, for each GPU; SGLang adds a page. Needs a `model` whose layers have neither
    windows nor states. Unit: GB, that is 10**9 bytes."""
    write_policy: Literal["write_through", "write_through_selective", "write_back"] = (
        "write_through"
    )
    """When KV is copied to host memory. `write_through`: when it is first inserted into the prefix
    cache. `write_through_selective`: when it is used a second time. `write_back`: when it is
    evicted."""
    load_bandwidth_gb_s: Annotated[float, Field(ge=0.001, le=1_000_000)] | None = None
    """Speed of a load from host memory to the device, and of a copy the other way, in bytes. Needs
    the scenario's `model`. Unit: GB/s."""
    load_tokens_per_s: Annotated[float, Field(ge=1, le=10**12)] | None = None
    """The same speed in tokens. Unit: tokens/s."""
    load_back_threshold_tokens: int = Field(default=10, ge=0, le=2**31 - 1)
    """A hit in host memory that is shorter than this is computed again instead of loaded. Unit:
    tokens."""
    overlap_layers: Annotated[int, Field(ge=1, le=1000)] | None = None
    """A step and its loads overlap in this many equal parts: a part of the step waits only for its
    own part of the loads. 1: the step waits for all of its loads. Without it: the layers of
    `model`, or 1 without a model. Unit: layers."""

    window_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Of the copy of a token, the part that is KV of layers with a sliding window, if SGLang keeps
    it in a pool of its own. Without it: as `model` says, or 0.5 without a model. Unit: share."""
    state_tokens: Annotated[float, Field(gt=0, le=10**9)] | None = None
    """A state of state-space or linear attention layers takes as long to copy as this many tokens.
    Without it: as `model` says, or 100 without a model. Unit: tokens."""

    storage: StorageSection | None = None
    """A store below host memory, which the scenario's `store` describes. Without it: none."""

    @model_validator(mode="after")
    def _check_choices(self) -> Self:
        sizes = [key for key in _SIZES if getattr(self, key) is not None]
        if len(sizes) > 1:
            raise KeysError(
                f"{sizes[0]} and {sizes[1]} set the same size: give one of them, not both", *sizes
            )
        if self.load_bandwidth_gb_s is None and self.load_tokens_per_s is None:
            raise ValueError("needs load_bandwidth_gb_s or load_tokens_per_s")
        if self.load_bandwidth_gb_s is not None and self.load_tokens_per_s is not None:
            raise KeysError(
                "load_bandwidth_gb_s and load_tokens_per_s set the same speed: give one of them,"
                " not both",
                "load_bandwidth_gb_s",
                "load_tokens_per_s",
            )
        return self

    def settings(self, pool_tokens: int, page_size: int) -> HostCacheSettings:
        """The settings for a server with a pool of `pool_tokens` tokens.

        With `size_gb` there is one page, until `sized` knows the model.

        Raises InputError: host memory has no room for a page.
        """
        capacity = page_size if self.size_gb is not None else self.capacity_tokens
        if capacity is None:
            # Whole pages and one more, as in SGLang 0.5.23 (mem_cache/pool_host/base.py).
            capacity = int(pool_tokens * self._ratio(pool_tokens)) // page_size * page_size
            capacity += page_size
        if capacity < page_size:
            raise InputError(
                f"makes room for {capacity} tokens, less than page_size {page_size}",
                key=("scheduler", "host_cache", "capacity_tokens"),
            )
        return HostCacheSettings(
            capacity_tokens=capacity // page_size * page_size,
            write_after_uses=_USES_TO_COPY[self.write_policy],
            load_back_threshold_tokens=self.load_back_threshold_tokens,
            ratio=self._ratio(pool_tokens),
        )

    def _ratio(self, pool_tokens: int) -> float:
        """The size as a multiple of the pool. SGLang shares a given size out in this ratio."""
        if self.capacity_tokens is not None:
            return self.capacity_tokens / pool_tokens
        return DEFAULT_RATIO if self.ratio is None else self.ratio

    def sized(
        self, settings: HostCacheSettings, model: "ModelShape | None", tp: int, page_size: int
    ) -> HostCacheSettings:
        """The settings with the size that `size_gb` of each of `tp` GPUs make.

        Whole pages and one more, as in SGLang 0.5.23 (mem_cache/pool_host/base.py).

        Raises InputError: the model is not known, or not all of its layers keep every token.
        """
        if self.size_gb is None:
            return settings
        sizes = None if model is None else kv_bytes(model, tp)
        if sizes is None or sizes.windows or sizes.per_request:
            what = "needs a model whose shape is known"
            if sizes is not None:
                what = "is not simulated for models with windows or states: give ratio"
            raise InputError(what, key=("scheduler", "host_cache", "size_gb"))
        num_tokens = int(self.size_gb * 10**9 * tp) // sizes.per_token
        return replace(settings, capacity_tokens=(num_tokens // page_size + 1) * page_size)

    def with_copy_times(
        self, settings: HostCacheSettings, model: "ModelShape | None", tp: int, *, has_windows: bool
    ) -> HostCacheSettings:
        """The settings with the times of copies.

        `has_windows`: the layers with windows have a pool of their own.

        Raises InputError: as `load_times`.
        """
        ns_per_token = self.load_times(model, tp).ns_per_token
        window_share, state_tokens = self.window_share, self.state_tokens
        if window_share is None:
            window_share = _WINDOW_SHARE if model is None else _share_of_windows(model)
        if state_tokens is None:
            state_tokens = _STATE_TOKENS
            if model is not None:
                state_tokens = model.state_bytes / model.kv_bytes_per_token
        return replace(
            settings,
            copy_ns_per_token=ns_per_token,
            full_share=1.0 - window_share if has_windows else 1.0,
            state_tokens=state_tokens,
        )

    def load_times(self, model: "ModelShape | None", tp: int) -> LoadTimes:
        """How long loads take. Each of `tp` GPUs loads its share of a token over its own link.

        Raises InputError: a bandwidth is given, but the scenario has no model.
        """
        num_parts = self.overlap_layers
        if num_parts is None:
            num_parts = 1 if model is None else model.num_layers
        if self.load_tokens_per_s is not None:
            return LoadTimes(NS_PER_S / self.load_tokens_per_s, num_parts)
        if model is None or self.load_bandwidth_gb_s is None:
            key = ("scheduler", "host_cache", "load_bandwidth_gb_s")
            raise InputError("needs a model whose shape is known", key=key)
        # 1 GB/s is 1 byte per ns.
        return LoadTimes(model.kv_bytes_per_token / tp / self.load_bandwidth_gb_s, num_parts)


def _share_of_windows(model: "ModelShape") -> float:
    """Of the bytes of a token's KV, the share that layers with a window have."""
    num_bytes = [
        layer.count * layer.attention.kv_bytes(model.kv_element_bytes, 1)
        for layer in model.layers
        if layer.attention.window is not None
    ]
    return sum(num_bytes) / model.kv_bytes_per_token
