"""The settings that SGLang's scheduler reads, each declared once (see `sim.core.declared`)."""

from dataclasses import dataclass
from typing import Annotated, Literal

from sim.core.declared import (
    MAX_COUNT,
    NO_FLAG,
    NOT_MEASURED,
    Bounds,
    Count,
    Flag,
    Share,
    WholeNumber,
)
from sim.sglang.version_rules import NEWEST


# Objects are made of the derived class alone: methods for this one would only cost time at start.
@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class SchedulerSettings:
    """Keys of the section `scheduler` that the scheduler gets as they are.

    Names and defaults are those of SGLang 0.5.23's flags, with underscores. The keys of
    `sim.sglang.section.keys.SglangKeys` mean something else for the scheduler, or nothing.
    """

    version: Annotated[
        Literal["0.5.23", "0.5.22", "0.5.17", "0.5.10", "0.5.9", "0.5.1"], NO_FLAG
    ] = NEWEST
    """The version whose rules hold, where versions differ. `0.5.9` stands for 0.5.3 to
    0.5.9, `0.5.17` for 0.5.14 to 0.5.21
    (docs/explanation/sglang.md#older-versions)."""
    page_size: Annotated[int, Bounds(ge=1, le=4096)] = 1
    """Tokens of a KV page. Prefixes are shared in whole pages. Unit: tokens."""
    context_length: Count = 131_072
    """Largest number of tokens of a request, prompt and output together. At least `page_size`.
    Unit: tokens."""
    chunked_prefill_size: Annotated[int, Bounds(le=MAX_COUNT), Flag(always=True)] = 8_192
    """Largest number of prefill tokens of a step; a longer prompt is split. A multiple of
    `page_size`, or -1: prompts are never split. Unit: tokens."""
    max_prefill_tokens: Count = 16_384
    """After this many prefill tokens a pass admits no further request. Unit: tokens."""
    max_running_requests: Annotated[Count, Flag(always=True)] = 256
    """Request slots. Unit: requests."""
    prefill_max_requests: Count | None = None
    """Largest number of requests of one prefill batch. Without it: no limit. Unit: requests."""
    schedule_conservativeness: Annotated[float, Bounds(ge=0, le=1000)] = 1.0
    """Scales the new-token ratio that the server starts with."""
    clip_max_new_tokens: Annotated[
        Count, Flag(variable="SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION")
    ] = 4_096
    """Admission never reserves more than this for one output. Unit: tokens."""
    enable_mixed_chunk: bool = False
    """A prefill batch includes the decode rows, too. Without effect if prompts are never split."""
    disable_radix_cache: bool = False
    """No prefix is reused. Policies that use the cache, such as `lpm`, become `fcfs`."""
    disable_overlap_schedule: bool = False
    """A step is decided only when the result of the previous one is known."""
    enable_priority_scheduling: bool = False
    """Order by priority first, and preempt. Only with policy `fcfs`, `lof`, `priority` or one of
    your own."""
    schedule_low_priority_values_first: bool = False
    """Smaller priority values go first."""
    priority_scheduling_preemption_threshold: WholeNumber = 10
    """A running request is preempted only for one whose priority is better by more than this.
    Unit: priority."""
    disable_priority_preemption: Annotated[bool, NOT_MEASURED] = False
    """Never preempt."""
    default_priority_value: Annotated[int, Bounds(ge=-MAX_COUNT, le=MAX_COUNT)] | None = None
    """Priority of a request that has none of its own, with `enable_priority_scheduling` or policy
    `priority`. Without it: such a request is the least important. Unit: priority."""
    retraction_policy: Annotated[Literal["length", "priority"], NOT_MEASURED] = "length"
    """Which request is retracted first when decoding runs out of pages: the one with the fewest
    tokens generated, or the one with the lowest priority."""
    random_seed: Annotated[int, Bounds(ge=0), NOT_MEASURED] = 0
    """Seed of policy `random`. It is independent of the scenario's `seed`. At most 2**63 - 1."""
    init_new_token_ratio: Annotated[Share, Flag(variable="SGLANG_INIT_NEW_TOKEN_RATIO")] = 0.7
    """Share of the running requests' remaining output that admission reserves at first. Unit:
    share."""
    min_new_token_ratio_factor: Annotated[
        Share, Flag(variable="SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR")
    ] = 0.14
    """The smallest new-token ratio, as a share of the first one. Unit: share."""
    new_token_ratio_decay_steps: Annotated[
        Count, Flag(variable="SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS")
    ] = 600
    """Decode steps in which the new-token ratio falls from the first value to the smallest.
    Unit: steps."""
    retract_decode_steps: Annotated[WholeNumber, Flag(variable="SGLANG_RETRACT_DECODE_STEPS")] = 20
    """Decode steps that must have room after a retraction. Unit: steps."""
    in_batch_prefix_check_threshold: Annotated[
        int,
        Bounds(ge=-1, le=MAX_COUNT),
        Flag(variable="IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD"),
    ] = 32
    """Under `lpm`, a request with at most this many cached tokens is compared with the requests
    that wait before it. -1: never. Unit: tokens."""
    in_batch_prefix_deprioritize_threshold: Annotated[
        WholeNumber, Flag(variable="IN_BATCH_PREFIX_CACHING_DEPRIORITIZE_THRESHOLD")
    ] = 32
    """Under `lpm`, a request goes last if it shares at least this many tokens with an earlier
    waiting request: that one will put them into the cache. Unit: tokens."""
    decode_first: Annotated[bool, NO_FLAG] = False
    """After a prefill step, running requests decode once before the next prefill step."""
    max_queued_requests: Count | None = None
    """Largest number of waiting requests (docs/explanation/sglang.md, rule 21). One more is
    aborted, or with priorities the least important one. Without it: no limit. Unit: requests."""
    prefill_decode_interval: WholeNumber = 0
    """Decode steps that follow a prefill step, or a mixed one, before the next prefill
    (docs/explanation/sglang.md, rule 20). 0: none. Not together with `decode_first`. Unit:
    steps."""
    prefill_decode_interval_min_bs: WholeNumber = 0
    """With fewer running requests than this, `prefill_decode_interval` does not hold prefills
    back. Unit: requests."""
    min_free_slots_delay: WholeNumber = 0
    """While requests run, none is admitted before this many slots are free, at most
    `max_running_requests`. 0 or 1: no such limit. Unit: requests."""
    scheduler_recv_interval: Count = 1
    """Decode steps from one look for new requests to the next; after a prefill step the server
    looks at once (docs/explanation/sglang.md, rule 19). Unit: steps."""
    num_reserved_decode_tokens: Annotated[WholeNumber, NOT_MEASURED] = 512
    """On a decode server (docs/explanation/disaggregation.md): tokens that are kept free for each
    request that holds KV, before a further request gets any. Unit: tokens."""
    disaggregation_decode_polling_interval: Annotated[Count, NOT_MEASURED] = 1
    """On a decode server: steps from one look for arrived KV to the next. Unit: steps."""
    disaggregation_decode_enable_radix_cache: Annotated[bool, NOT_MEASURED] = False
    """A decode server keeps prefixes, so that less KV has to be sent to it. `host_cache` on such a
    server needs it."""
    decode_max_requests: Annotated[Count | None, NO_FLAG] = None
    """Largest number of rows of a decode step; if more requests run, they take turns
    (docs/explanation/batching.md#decoding-by-turns). Only with `disable_overlap_schedule: true`
    and without `enable_mixed_chunk`. Without it: no limit. Unit: requests."""
