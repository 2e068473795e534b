"""Settings of vLLM's scheduler, under vLLM's flag names."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmConfig:
    """Settings of one vLLM v1 scheduler: names and defaults of vLLM 0.19.0's SchedulerConfig.

    `async_scheduling` is on, as vLLM has it where nothing forbids it. Values are trusted: the
    scenario schema checks them.

    Attributes:
        max_num_batched_tokens: tokens of a step, all requests together.
        max_num_seqs: most requests that run at a time.
        max_model_len: most tokens a request may have, prompt and output.
        block_size: tokens a block of KV.
        num_gpu_blocks: blocks of the pool, the null block among them, which nobody gets.
        enable_prefix_caching: blocks are found again by their contents.
        enable_chunked_prefill: a prompt may be admitted with less than all of it in a step.
        long_prefill_token_threshold: most tokens of one request in a step; 0: no limit.
        scheduling_policy: `fcfs` or `priority`, where smaller values go first.
        async_scheduling: decide a step while the one before runs.
        scheduler_reserve_full_isl: admit a request only if its whole prompt would fit.
    """

    max_num_batched_tokens: int = 2_048
    max_num_seqs: int = 128
    max_model_len: int = 8_192
    block_size: int = 16
    num_gpu_blocks: int = 2_049
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    scheduling_policy: str = "fcfs"
    async_scheduling: bool = True
    scheduler_reserve_full_isl: bool = True

    def as_dict(self) -> dict[str, Any]:
        """All settings as plain values."""
        return {"family": self.family, **asdict(self)}

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
        return None

    @property
    def max_rows(self) -> int:
        return self.max_num_seqs
