"""The `scheduler` section with `family: vllm`: vLLM's flags, their bounds and combinations."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from sim.core.declared import NO_FLAG, Bounds, Count, Flag, WholeNumber
from sim.core.errors import InputError
from sim.engine.store import StoreSettings
from sim.family.section import Drafts, MemoryForKv, ServerSection, kv_format_of_flag
from sim.latency.wrappers import spare_layers_first
from sim.user.objects import FailAt
from sim.validation import KeysError, keys_of
from sim.vllm.config import VllmConfig, VllmSettings
from sim.vllm.section.engine import with_engine
from sim.vllm.section.groups import (
    KVCacheGroups,
    cache_groups,
    check_groups,
    groups_for_model,
    longest_that_fits,
    tokens_of_groups,
)
from sim.vllm.section.offload import (
    KvOffloading,
    check_offloading,
    check_offloading_in_role,
    check_offloading_on_ranks,
    config_with_store,
    obstacle_to_copies,
    offload_on_stages,
)
from sim.vllm.section.offload_sizes import bytes_per_token, offload_settings
from sim.vllm.section.roles import refuses_stages, with_role
from sim.vllm.section.speculation import SpeculativeConfig, check_drafts, check_staged_drafts
from sim.vllm.section.versions import check_version
from sim.vllm.version_rules import VERSIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.latency.shapes import ModelShape
    from sim.vllm.section.tiers import SecondaryTierSection

_MAX_BLOCKS = 2**36
_MOST_GRAPH_TOKENS = 512
_SETTINGS = [field.name for field in fields(VllmSettings)]

if TYPE_CHECKING:

    class _SchedulerKeys(ServerSection, VllmSettings):
        pass
else:
    _SchedulerKeys = keys_of(VllmSettings, ServerSection)


class VllmSection(_SchedulerKeys):
    """vLLM's scheduler.

    Names are those of vLLM 0.33.0's flags, with underscores; defaults are those of its
    `SchedulerConfig`. docs/explanation/vllm.md explains the rules, and
    docs/explanation/vllm.md#settings lists the defaults that differ from `vllm serve`.
    """

    store_key: ClassVar = "kv_offloading.secondary_tiers"

    family: Annotated[Literal["vllm"], NO_FLAG]
    """The server whose scheduler is simulated."""
    max_model_len: Annotated[Count | None, Flag(always=True)] = None
    """Largest number of tokens of a request, prompt and output together. Not more than the pool
    has. Without it: the size of the pool. Unit: tokens."""
    num_gpu_blocks_override: Annotated[int, Bounds(ge=2, le=_MAX_BLOCKS)] | None = None
    """Blocks of the pool, counting the null block, which no request gets. Without it: what fits
    beside the weights (docs/reference/scenario.md#derived-pool-size). Unit: blocks."""
    gpu_memory_utilization: Annotated[float, Bounds(gt=0, le=1)] | None = None
    """Share of the hardware's memory for weights and KV, from which the pool size is derived:
    0.92 without it, 0.9 before version 0.33.0. Not together with `num_gpu_blocks_override`. Unit:
    share."""
    kv_cache_dtype: Literal["auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"] = "auto"
    """Number format of the KV cache, from which bytes of a token follow. `auto`: as the
    checkpoint says, else 16 bits."""
    max_cudagraph_capture_size: Count | None = None
    """Largest number of tokens of a step that CUDA graphs were captured for. With latency kind
    `aiconfigurator`, a step of fewer decode rows is padded to the next captured number. With a
    `host`, a larger step with prefill rows is launched kernel by kernel
    (docs/explanation/latency.md#captured-graphs). Without it: no padding, and graphs up to twice
    `max_num_seqs`, but not more than 512. Unit: tokens."""
    speculative_config: SpeculativeConfig | None = None
    """Speculative decoding (docs/explanation/speculation.md). From version 0.19.0 on. Without it:
    none."""
    kv_cache_groups: Annotated[KVCacheGroups | Literal["model"] | None, NO_FLAG] = None
    """What the layers keep, if not all of them keep KV of all tokens: each group of layers has a
    block table of its own, and all take blocks of one pool (docs/explanation/layer-groups.md).
    `model`: the groups into which vLLM puts the layers of the scenario's model. A list needs
    `num_gpu_blocks_override`. Without it: all layers keep KV of all tokens."""
    prefix_cache_retention_interval: Annotated[WholeNumber | None, Flag(since="0.33.0")] = 0
    """How often layers with windows or states keep in the cache what a request needs to go on from
    there. 0: only where a request is likely to, at the end of the prompt and where prompts were
    seen to part. `null`: after every block, as versions before 0.33.0 do. Unit: tokens."""
    kv_offloading_size: Annotated[float, Bounds(gt=0, le=1_000_000)] | None = None
    """CPU memory for KV whose blocks leave the GPU (docs/explanation/offloading.md). Needs the
    scenario's `model`. Each rank has as much. From version 0.19.0 on. Without it: none, or
    `kv_offloading.capacity_tokens`. Unit: GiB."""
    kv_offloading: Annotated[KvOffloading | None, NO_FLAG] = None
    """What is kept in CPU memory, and how fast copies are."""
    async_scheduling: bool | None = None
    """A step is decided while the one before it runs. Without it: from version 0.14.0 on, unless
    draft tokens are made in a way that it does not go with."""
    scheduler_reserve_full_isl: bool | None = None
    """A request is admitted only if its whole prompt fits into the free blocks. Without it: from
    version 0.19.0 on. Older versions do not have it."""
    api_server_count: Annotated[int, Bounds(ge=1, le=1024)] | None = None
    """Processes that take in requests; their times are those of `host`
    (docs/explanation/latency.md#front-ends). Without it: as many as `latency.dp`; 1 before version
    0.19.0. Unit: processes."""
    engine: Annotated[Annotated[str, Field(min_length=1)] | None, NO_FLAG] = None
    """The folder of a Python environment with a vLLM of any version, whose own scheduler decides
    (docs/how-to/engine.md). Without it: the rules of `version` decide."""

    @field_validator("version", mode="before")
    @classmethod
    def _with_all_numbers(cls, version: object) -> object:
        """`0.33` means 0.33.0; in YAML it is a number, if it is not quoted."""
        whole = f"{version}.0"
        return whole if whole in VERSIONS else version

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise KeysError(
                f"max_num_batched_tokens {self.max_num_batched_tokens} must be at least"
                f" max_num_seqs {self.max_num_seqs}",
                "max_num_batched_tokens",
                "max_num_seqs",
            )
        if None not in (self.num_gpu_blocks_override, self.gpu_memory_utilization):
            raise KeysError(
                "gpu_memory_utilization derives the number of blocks: give it or"
                " num_gpu_blocks_override, not both",
                "gpu_memory_utilization",
                "num_gpu_blocks_override",
            )
        if self.max_num_active_seqs is not None and self.max_num_active_seqs > self.max_num_seqs:
            raise KeysError(
                f"max_num_active_seqs {self.max_num_active_seqs} must be at most max_num_seqs"
                f" {self.max_num_seqs}",
                "max_num_active_seqs",
                "max_num_seqs",
            )
        return self

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        check_version(self, type(self))
        check_drafts(self)
        check_groups(self)
        check_offloading(self)
        return self

    @property
    def drafts(self) -> Drafts | None:
        return None if self.speculative_config is None else self.speculative_config.drafts

    def check_real_run(self) -> tuple[str, str] | None:
        if self.engine is not None:
            return "engine", "the real runner asks no installed engine"
        if (obstacle := obstacle_to_copies(self)) is not None:
            return obstacle
        if self.kv_cache_groups is not None:
            return "kv_cache_groups", "the real runner serves no model with groups of layers"
        if self.speculative_config is None or self.speculative_config.method == "ngram":
            return None
        return "speculative_config", "the real runner drafts with method ngram alone"

    @property
    def schedules_ahead(self) -> bool:
        """`async_scheduling`, or the version's default.

        It is off with drafts of method `ngram`, as with the first model runner of version 0.33.0.
        The second one, its default, allows it, and has it on.
        """
        if self.async_scheduling is None:
            drafts, rules = self.speculative_config, VERSIONS[self.version]
            if drafts is not None and drafts.method == "ngram":
                return False
            if drafts is not None and drafts.method == "draft_model":
                return rules.async_draft_model
            return VERSIONS[self.version].async_scheduling
        return self.async_scheduling

    @property
    def reserves_full_isl(self) -> bool:
        """`scheduler_reserve_full_isl`, or the version's default."""
        if self.scheduler_reserve_full_isl is None:
            return VERSIONS[self.version].reserves_full_isl
        return self.scheduler_reserve_full_isl

    @property
    def retention_interval(self) -> int | None:
        """`prefix_cache_retention_interval`; None, too, before there was one."""
        has_it = VERSIONS[self.version].has_retention_interval
        return self.prefix_cache_retention_interval if has_it else None

    # ---- what every family's section says --------------------------------------------------------

    @property
    def page_size(self) -> int:
        return self.block_size

    @property
    def max_rows(self) -> int:
        return self.max_num_seqs

    @property
    def max_step_tokens(self) -> int:
        return self.max_num_batched_tokens

    @property
    def pool_tokens(self) -> int | None:
        if self.num_gpu_blocks_override is None:
            return None
        return (self.num_gpu_blocks_override - 1) * self.block_size

    @property
    def runner_keys(self) -> tuple[str, ...]:
        return "block_size", "num_gpu_blocks_override", "gpu_memory_utilization", "max_num_seqs"

    @property
    def graph_sizes(self) -> tuple[int, ...]:
        """VLLM 0.19.0: `_set_cudagraph_sizes` of config/vllm.py."""
        largest = self.max_cudagraph_capture_size
        if largest is None:
            return ()
        sizes = (1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16))
        return tuple(size for size in sizes if size <= largest)

    @property
    def prefill_graph_tokens(self) -> int:
        """VLLM 0.19.0's default: `_set_cudagraph_sizes` of config/vllm.py."""
        return self.max_cudagraph_capture_size or min(2 * self.max_num_seqs, _MOST_GRAPH_TOKENS)

    @property
    def longest_request(self) -> tuple[str, int | None]:
        return "max_model_len", self.max_model_len

    def with_longest_request(self, num_tokens: int) -> Self:
        if self.max_model_len is not None:
            return self
        return self.model_copy(update={"max_model_len": num_tokens})

    def tokens_in(self, model: "ModelShape | None", free: MemoryForKv) -> int | None:
        return tokens_of_groups(self, model, free)

    def for_model(self, find_model: "Callable[[], ModelShape | None]") -> Self:
        if self.kv_cache_groups != "model":
            return self
        return self.model_copy(update={"kv_cache_groups": groups_for_model(find_model())})

    @property
    def num_pages_kept_back(self) -> int:
        """One: the null block."""
        return 1

    @property
    def page_key(self) -> str:
        return "block_size"

    @property
    def pool_key(self) -> str:
        return "num_gpu_blocks_override"

    def pool_setting(self, num_tokens: int) -> int:
        return num_tokens // self.block_size

    @property
    def memory_share(self) -> tuple[str, float]:
        share = self.gpu_memory_utilization
        default = VERSIONS[self.version].gpu_memory_utilization
        return "gpu_memory_utilization", default if share is None else share

    @property
    def kv_cache_format(self) -> str | None:
        return kv_format_of_flag(self.kv_cache_dtype)

    def of_rank(self, num_ranks: int) -> Self:
        check_offloading_on_ranks(self)
        return self

    def num_front_ends(self, num_ranks: int) -> int:
        if self.api_server_count is not None:
            return self.api_server_count
        return num_ranks if VERSIONS[self.version].front_end_per_rank else 1

    def config(self, pool_tokens: int) -> VllmConfig:
        """The scheduler's settings with a pool of `pool_tokens` tokens.

        Raises InputError: vLLM would not start with these settings; the error names the key.
        """
        return VllmConfig(
            **{name: getattr(self, name) for name in _SETTINGS},
            max_model_len=self._longest(pool_tokens),
            num_gpu_blocks=pool_tokens // self.block_size + 1,
            async_scheduling=self.schedules_ahead,
            scheduler_reserve_full_isl=self.reserves_full_isl,
            kv_cache_groups=cache_groups(self),
            prefix_cache_retention_interval=self.retention_interval,
        )

    def with_user_code(self, config: VllmConfig, base_dir: Path, fail_at: FailAt) -> VllmConfig:
        keys = "kv_offloading_size", "kv_offloading"
        refused = [key for key in keys if getattr(self, key) is not None]
        return with_engine(self.engine, config, base_dir, fail_at, refused)

    def with_load_times(
        self, config: VllmConfig, find_model: "Callable[[], ModelShape | None]", num_devices: int
    ) -> VllmConfig:
        offload = offload_settings(self, find_model, num_devices)
        return config if offload is None else replace(config, offload=offload)

    @property
    def _tiers(self) -> "Sequence[SecondaryTierSection]":
        return () if self.kv_offloading is None else self.kv_offloading.tiers

    @property
    def uses_store(self) -> bool:
        return any(tier.store is None for tier in self._tiers)

    @property
    def has_shared_stores(self) -> bool:
        return any(tier.store is not None and tier.store.shared for tier in self._tiers)

    @property
    def store_page_size(self) -> int:
        return self.block_size * (self.kv_offloading or KvOffloading()).blocks_per_chunk

    def store_bytes_per_token(self, model: "ModelShape", tp: int) -> float:
        return bytes_per_token(self, model, tp)

    def with_store(self, config: VllmConfig, store: StoreSettings) -> VllmConfig:
        return config_with_store(config, store)

    def with_role(self, config: VllmConfig, role: str, model: "ModelShape | None") -> VllmConfig:
        check_offloading_in_role(self, role)
        return with_role(self, config, role)

    def refuses_stages(self, role: str) -> str | None:
        return refuses_stages(self.version, role) or super().refuses_stages(role)

    def stage_layers(self, num_layers: int, num_stages: int) -> list[int]:
        return spare_layers_first(num_layers, num_stages)

    def pipeline_config(self, config: VllmConfig, num_stages: int) -> VllmConfig:
        """With async scheduling, older versions have no more steps in flight than without stages.

        Version 0.33.0 has micro-batches then, too (docs/explanation/pipeline.md#vllm).
        """
        config = offload_on_stages(self, config, num_stages)
        rules = VERSIONS[self.version]
        if self.speculative_config is not None:
            check_staged_drafts(self.version, is_async=config.async_scheduling)
        if self.async_scheduling and not rules.async_pipeline:
            reason = f"vLLM {self.version} has no async scheduling with latency.pp above 1"
            raise InputError(reason, key=("scheduler", "async_scheduling"))
        if config.async_scheduling and rules.async_pipeline and not rules.async_micro_batches:
            return config
        longest = self._longest(config.pool_tokens, num_stages)
        return replace(config, micro_batches=num_stages, max_model_len=longest)

    def _longest(self, pool_tokens: int, num_stages: int = 1) -> int:
        most = longest_that_fits(self, pool_tokens, num_stages)
        longest = most if self.max_model_len is None else self.max_model_len
        if longest > most:
            raise InputError(
                f"{longest} tokens do not fit in the pool of {pool_tokens} tokens",
                key=("scheduler", "max_model_len"),
            )
        if not self.enable_chunked_prefill and self.max_num_batched_tokens < longest:
            raise InputError(
                f"false needs max_num_batched_tokens {self.max_num_batched_tokens} to be at least"
                f" the longest sequence, max_model_len {longest}",
                key=("scheduler", "enable_chunked_prefill"),
            )
        if VERSIONS[self.version].limits_threshold and self.long_prefill_token_threshold > longest:
            raise InputError(
                f"{self.long_prefill_token_threshold} is more than the longest sequence,"
                f" max_model_len {longest}",
                key=("scheduler", "long_prefill_token_threshold"),
            )
        return longest
