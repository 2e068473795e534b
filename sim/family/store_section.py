"""The key `store`: where servers keep KV below their host memory."""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from sim.core.declared import MAX_COUNT
from sim.core.errors import InputError, KeyPath, unknown_value
from sim.core.units import NS_PER_S
from sim.engine.store import StoreSettings
from sim.validation import KeysError, StrictModel

# What others have published; docs/explanation/storage.md#presets says where.
_PRESETS: dict[str, dict[str, float]] = {
    "nvme": {"read_bandwidth_gb_s": 6.8, "write_bandwidth_gb_s": 5.6},
    "dram-pool": {"read_bandwidth_gb_s": 87.0, "write_bandwidth_gb_s": 87.0},
    "network-file-system": {
        "read_bandwidth_gb_s": 1.573,
        "write_bandwidth_gb_s": 1.573,
        "lookup_s": 0.00025,
        "read_latency_s": 0.00025,
        "write_latency_s": 0.0027,
    },
}
_Bandwidth = Annotated[float, Field(ge=0.001, le=1_000_000)]
_Speed = Annotated[float, Field(ge=1, le=10**15)]
_Seconds = Annotated[float, Field(ge=0, le=60)]
_Share = Annotated[float, Field(ge=0, le=1)]


class StoreSection(StrictModel):
    """A store, for which the scheduler's section says how servers use it.

    That is `host_cache.storage` of family sglang, and `kv_offloading.secondary_tiers` of family
    vllm. docs/explanation/storage.md explains it. Each direction needs its speed, in bytes or in
    tokens.
    """

    capacity_gb: Annotated[float, Field(gt=0, le=10**9)] | None = None
    """Size in bytes; the least recently used pages make room. Needs the scenario's `model`. Without
    it, and without `capacity_tokens`: there is always room. Unit: GB, that is 10**9 bytes."""
    capacity_tokens: Annotated[int, Field(ge=1, le=2**50)] | None = None
    """The same size in tokens. Unit: tokens."""
    read_bandwidth_gb_s: _Bandwidth | None = None
    """Bandwidth of all reads together. Needs the scenario's `model`. Unit: GB/s."""
    write_bandwidth_gb_s: _Bandwidth | None = None
    """Bandwidth of all writes together. Needs the scenario's `model`. Unit: GB/s."""
    read_tokens_per_s: _Speed | None = None
    """The speed of all reads together, in tokens. Unit: tokens/s."""
    write_tokens_per_s: _Speed | None = None
    """The speed of all writes together, in tokens. Unit: tokens/s."""
    lookup_s: _Seconds = 0.0
    """Time to look up the pages of a prompt. Unit: s."""
    read_latency_s: _Seconds = 0.0
    """Time before a page's first byte is read, see `pages_at_once`. Unit: s."""
    write_latency_s: _Seconds = 0.0
    """The same for a write. Unit: s."""
    pages_at_once: Annotated[int, Field(ge=1, le=MAX_COUNT)] = 128
    """How many pages of a read or a write share a latency. 1: a server asks for one page after
    another, as SGLang does with files; 128 pages are all that it asks for together. Unit: pages."""
    failed_read_share: _Share = 0.0
    """Share of pages whose read fails; the fetch ends before such a page. Unit: share."""
    failed_write_share: _Share = 0.0
    """Share of writes that fail. Unit: share."""
    seed: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 0
    """Draws which reads and writes fail."""
    shared: bool = False
    """All servers have this store together: each finds what the others have written, and they share
    its bandwidth. Otherwise each has one of its own."""

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.capacity_gb is not None and self.capacity_tokens is not None:
            raise KeysError(
                "capacity_gb and capacity_tokens set the same size: give one of them, not both",
                "capacity_gb",
                "capacity_tokens",
            )
        for direction in ("read", "write"):
            keys = f"{direction}_bandwidth_gb_s", f"{direction}_tokens_per_s"
            given = [key for key in keys if getattr(self, key) is not None]
            if not given:
                raise ValueError(f"needs {keys[0]} or {keys[1]}, or a preset")
            if len(given) == len(keys):
                raise KeysError(
                    f"{keys[0]} and {keys[1]} set the same speed: give one of them, not both", *keys
                )
        return self

    @property
    def has_capacity(self) -> bool:
        """Whether its size is given."""
        return self.capacity_gb is not None or self.capacity_tokens is not None

    def settings(
        self, page_size: int, bytes_per_token: float | None, where: KeyPath = ("store",)
    ) -> StoreSettings:
        """The settings for servers with pages of this many tokens.

        `bytes_per_token`: KV of a token in the store; None: the scenario has no model. `where`: the
        key of this section.

        Raises:
            InputError: something is given in bytes, but the scenario has no model; or the store has
                no room for a page.
        """
        capacity = self.capacity_tokens
        if self.capacity_gb is not None:
            token_bytes = _known(bytes_per_token, (*where, "capacity_gb"))
            capacity = int(self.capacity_gb * 1e9 / token_bytes)
        if capacity is not None and capacity < page_size:
            key = "capacity_tokens" if self.capacity_gb is None else "capacity_gb"
            reason = f"makes room for {capacity} tokens, less than a page's {page_size}"
            raise InputError(reason, key=(*where, key))
        return StoreSettings(
            capacity_pages=None if capacity is None else capacity // page_size,
            lookup_ns=self.lookup_s * NS_PER_S,
            read_latency_ns=self.read_latency_s * NS_PER_S,
            write_latency_ns=self.write_latency_s * NS_PER_S,
            read_ns_per_page=page_size * self._ns_per_token("read", bytes_per_token, where),
            write_ns_per_page=page_size * self._ns_per_token("write", bytes_per_token, where),
            pages_at_once=self.pages_at_once,
            failed_read_share=self.failed_read_share,
            failed_write_share=self.failed_write_share,
            seed=self.seed,
            is_shared=self.shared,
        )

    def _ns_per_token(self, direction: str, bytes_per_token: float | None, where: KeyPath) -> float:
        tokens_per_s: float | None = getattr(self, f"{direction}_tokens_per_s")
        if tokens_per_s is not None:
            return NS_PER_S / tokens_per_s
        key = f"{direction}_bandwidth_gb_s"
        bandwidth: float = getattr(self, key)
        # 1 GB/s is 1 byte per ns.
        return _known(bytes_per_token, (*where, key)) / bandwidth


def _known(bytes_per_token: float | None, key: KeyPath) -> float:
    if bytes_per_token is None:
        raise InputError("needs a model whose shape is known", key=key)
    return float(bytes_per_token)


def _store_of(value: Any) -> Any:
    """The section that a preset's name means, or one with `preset` and keys that replace its.

    A speed in tokens replaces that in bytes.
    """
    section = {"preset": value} if isinstance(value, str) else value
    if not (isinstance(section, dict) and isinstance(section.get("preset"), str)):
        return value
    name = section["preset"]
    if name not in _PRESETS:
        raise ValueError(unknown_value("store preset", name, _PRESETS))
    own = {key: part for key, part in section.items() if key != "preset"}
    kept = {
        key: part
        for key, part in _PRESETS[name].items()
        if key.replace("bandwidth_gb_s", "tokens_per_s") == key
        or key.replace("bandwidth_gb_s", "tokens_per_s") not in own
    }
    return kept | own


Store = Annotated[StoreSection, BeforeValidator(_store_of)]
