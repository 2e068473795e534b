"""Settings of vLLM's scheduler, under its flag names, each declared once (`sim.core.declared`)."""

from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

from sim.core.declared import NO_FLAG, Bounds, Count, Flag, WholeNumber
from sim.engine.acceptance import Speculation
from sim.engine.server_config import BOTH, DECODE, PREFILL, ServerConfig
from sim.vllm.cache.single_type_manager import MAMBA, KVCacheSpec
from sim.vllm.offload.settings import OffloadSettings
from sim.vllm.version_rules import NEWEST, VERSIONS, VllmRules

_SINCE_0_33 = Flag(since="0.33.0")


# Objects are made of the derived class alone: methods for this one would only cost time at start.
@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class VllmSettings:
    """Keys of the section `scheduler` that the scheduler gets as they are.

    Names are those of vLLM 0.33.0's flags, with underscores; defaults are those of its
    `SchedulerConfig`. The keys of `VllmSection` itself (sim.vllm.section.scheduler) mean something
    else for the scheduler, or nothing.
    """

    version: Annotated[Literal["0.33.0", "0.19.0", "0.14.0", "0.11.2", "0.10.2"], NO_FLAG] = NEWEST
    """The version whose rules and defaults hold, where versions differ. Each stands for those after
    it, too, up to the next (docs/explanation/vllm-versions.md). A version may be written without
    its last zero: `"0.33"`."""
    max_num_batched_tokens: Annotated[Count, Flag(always=True)] = 2_048
    """Token budget of a step, for all requests together. At least `max_num_seqs`. Unit: tokens."""
    max_num_seqs: Annotated[Count, Flag(always=True)] = 128
    """Largest number of requests that run at the same time. Unit: requests."""
    max_num_active_seqs: Annotated[Count | None, _SINCE_0_33] = None
    """Largest number of requests that run at the same time, if it is to be smaller than
    `max_num_seqs`, by which the runner's buffers and graphs are sized. From version 0.33.0 on.
    Unit: requests."""
    block_size: Annotated[int, Bounds(ge=1, le=4096)] = 16
    """Tokens of a KV block. Prefixes are shared in whole blocks. Unit: tokens."""
    enable_prefix_caching: bool = True
    """Other requests can find a full block by its tokens and reuse it."""
    enable_chunked_prefill: bool = True
    """A prompt may be split over several steps. `false` needs
    `max_num_batched_tokens` of at least `max_model_len`."""
    long_prefill_token_threshold: WholeNumber = 0
    """Largest number of tokens of one request in a step. 0: only the step's token budget limits it.
    From version 0.33.0 on it does not apply while a server has only one request, and it may not
    exceed `max_model_len`. Unit: tokens."""
    long_prefill_token_threshold_adaptive: Annotated[bool, _SINCE_0_33] = False
    """The threshold, if it is not 0, is at least `max_num_batched_tokens` divided by the number of
    requests that run or wait. From version 0.33.0 on."""
    prefill_schedule_interval: Annotated[Count, _SINCE_0_33] = 1
    """While requests decode, prompts are computed only in every n-th step, where n is this number.
    After a step that left requests waiting they are in every step. From version 0.33.0 on. Unit:
    steps."""
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    """`fcfs`: in order of arrival. `priority`: smaller priority values first; a request without
    a priority has 0."""
    kv_load_failure_policy: Annotated[Literal["fail", "recompute"], NO_FLAG] = "fail"
    """A decode server ends a request whose KV is lost on its way, or computes its prompt itself."""
    watermark: Annotated[float, Bounds(ge=0, lt=1), _SINCE_0_33] = 0.0
    """Share of the pool's blocks, counting the null block, that must stay free when a request is
    admitted while others run. From version 0.33.0 on. Unit: share."""
    max_num_queued_reqs: Annotated[WholeNumber | None, _SINCE_0_33] = None
    """The front end rejects a request if this many others are waiting or running. Without it:
    never. From version 0.33.0 on. Unit: requests."""
    max_num_queued_tokens: Annotated[WholeNumber | None, _SINCE_0_33] = None
    """The front end rejects a request if the prompts of all that have no first token yet have this
    many tokens or more. Without it: never. From version 0.33.0 on. Unit: tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmConfig(VllmSettings):
    """Settings of one vLLM v1 scheduler, under the names of vLLM 0.33.0's configuration classes.

    The values are not checked here: the scenario schema checks them. The attributes below are not
    keys of a scenario, or have another type than the key. A vLLM server derives `max_model_len` and
    `num_gpu_blocks` from the model and the GPU.

    Attributes:
        max_model_len: largest number of tokens of a request, prompt and output together.
        num_gpu_blocks: blocks of the pool, including the null block, which is never allocated.
        async_scheduling: decide a step while the step before it runs.
        scheduler_reserve_full_isl: admit a request only if its whole prompt fits into free blocks.
        kv_cache_groups: what the layers keep, if not all of them keep KV of all tokens.
        prefix_cache_retention_interval: how often layers with windows or states keep what a request
            could go on from; 0: only where requests are likely to; None: everywhere. Unit: tokens.
        role: what the server computes, see `sim.engine.server_config`.
        speculation: how draft tokens are made and accepted; None: no speculative decoding.
        micro_batches: steps in flight in a pipeline without async scheduling; 1: no such pipeline.
        offload: KV that is kept in CPU memory, too; None: none is.
        in_lockstep: rows that are all alike are decided at once; False: one by one, which decides
            the same and takes several times as long.
        engine: the installed engine that decides (`sim.installed`); None: the rules here do.
    """

    max_model_len: int = 8_192
    num_gpu_blocks: int = 2_049
    async_scheduling: bool = True
    scheduler_reserve_full_isl: bool = True
    kv_cache_groups: tuple[KVCacheSpec, ...] = ()
    prefix_cache_retention_interval: int | None = 0
    role: str = BOTH
    speculation: Speculation | None = None
    micro_batches: int = 1
    offload: OffloadSettings | None = None
    in_lockstep: bool = True
    engine: Any = None

    def as_dict(self) -> dict[str, Any]:
        """The settings as plain values, as a run log has them.

        `micro_batches`, `role` and `in_lockstep` are left out, and what does not apply.
        """
        settings = {"family": self.family, **asdict(replace(self, speculation=None, engine=None))}
        del settings["micro_batches"], settings["speculation"]
        del settings["role"], settings["in_lockstep"], settings["engine"]
        if self.offload is None:
            del settings["offload"]
        if self.engine is not None:
            settings["engine"] = str(self.engine.folder)
        if self.role != DECODE:
            del settings["kv_load_failure_policy"]
        if not self.kv_cache_groups:
            del settings["kv_cache_groups"], settings["prefix_cache_retention_interval"]
        if self.speculation is not None:
            settings["speculative_config"] = {
                "method": self.speculation.method,
                "num_speculative_tokens": self.speculation.num_tokens,
            }
            if self.speculation.method == "ngram":
                settings["speculative_config"] |= {
                    "prompt_lookup_min": self.speculation.lookup_min,
                    "prompt_lookup_max": self.speculation.lookup_max,
                }
        return settings

    @property
    def rules(self) -> VllmRules:
        return VERSIONS[self.version]

    @property
    def family(self) -> str:
        return "vllm"

    @property
    def page_size(self) -> int:
        return self.block_size

    @property
    def pool_tokens(self) -> int:
        """Tokens of all blocks but the null block."""
        return (self.num_gpu_blocks - 1) * self.block_size

    @property
    def overlaps(self) -> bool:
        return self.async_scheduling

    @property
    def host_cache_tokens(self) -> int | None:
        offload = self.offload
        if offload is None:
            return None
        return offload.num_chunks * offload.blocks_per_chunk * self.block_size

    @property
    def keeps_tokens_in_flight(self) -> bool:
        """A request that is preempted gets its tokens in flight (rules 13 and 22)."""
        return not (self.role == PREFILL and self.rules.drops_victims_tokens)

    @property
    def has_states(self) -> bool:
        """Some layers keep states."""
        return any(group.kind == MAMBA for group in self.kv_cache_groups)

    @property
    def max_rows(self) -> int:
        return self.max_num_seqs

    @property
    def max_active(self) -> int:
        """Largest number of running requests."""
        active = self.max_num_active_seqs
        return self.max_num_seqs if active is None else active

    @property
    def num_tokens_in_flight(self) -> int:
        """The most tokens of all steps that may be in flight (`max_in_flight_tokens`)."""
        num_steps = self.micro_batches + self.async_scheduling
        return num_steps * self.max_num_batched_tokens

    @property
    def watermark_blocks(self) -> int:
        """Blocks that stay free when a request is admitted beside others."""
        return int(self.watermark * self.num_gpu_blocks)


def with_copies_in_stream(config: ServerConfig) -> ServerConfig:
    """The settings for what a real server decides on KV in CPU memory.

    It makes the copies in the device's stream. The next step waits for them there, so for the
    scheduler they take no time. Settings without KV in CPU memory stay as they are.
    """
    if not isinstance(config, VllmConfig) or config.offload is None:
        return config
    return replace(config, offload=replace(config.offload, copy_ns_per_token=0.0))
