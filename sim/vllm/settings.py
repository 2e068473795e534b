"""The settings that vLLM's scheduler reads, each declared once (see `sim.core.told`)."""

from dataclasses import dataclass
from typing import Annotated, Literal

from sim.core.told import NO_FLAG, Bounds, Count, Told, WholeNumber
from sim.vllm.version_rules import NEWEST

_SINCE_0_33 = Told(since="0.33.0")


@dataclass(frozen=True, slots=True, kw_only=True)
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
    max_num_batched_tokens: Annotated[Count, Told(always=True)] = 2_048
    """Token budget of a step, for all requests together. At least `max_num_seqs`. Unit: tokens."""
    max_num_seqs: Annotated[Count, Told(always=True)] = 128
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
