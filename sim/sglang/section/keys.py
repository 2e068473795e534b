"""The keys of the `scheduler` section with `family: sglang`, their bounds and combinations."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sim.core.messages import unknown_value
from sim.family.section import ServerSection
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import POLICIES, PRIORITY_POLICIES
from sim.sglang.section.admission import AdmissionConfig
from sim.sglang.section.eviction import EvictionConfig, EvictionName, check_eviction
from sim.sglang.section.fairness import AgingTokensConfig, FairnessConfig
from sim.sglang.section.host_cache import HostCacheSection
from sim.sglang.section.prefill_delayer import PrefillDelayerSection
from sim.sglang.version_rules import NEWEST
from sim.user.named_class import OrUserClass, UserClass
from sim.validation.strict_model import MAX_COUNT, Count, KeysError

_DEFAULT = SchedulerConfig()
_MAX_WAIT_MS = 10**6
_MAX_TIMEOUT_S = 10**7
_MAX_POOL_TOKENS = 2**40


def _check_policy(name: str) -> str:
    if name not in POLICIES:
        raise ValueError(unknown_value("policy", name, POLICIES))
    return name


def _check_chunk(num_tokens: int) -> int:
    if num_tokens != -1 and num_tokens < 1:
        raise ValueError(f"must be -1 (off) or at least 1, got {num_tokens}")
    return num_tokens


WholeNumber = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Seconds = Annotated[float, Field(gt=0, le=_MAX_TIMEOUT_S)]
Share = Annotated[float, Field(ge=0, le=1)]
PolicyName = Annotated[Annotated[str, AfterValidator(_check_policy)] | UserClass, OrUserClass()]
ChunkSize = Annotated[int, Field(le=MAX_COUNT), AfterValidator(_check_chunk)]


class SglangKeys(ServerSection):
    """The keys; `sim.sglang.section.scheduler.SglangSection` says what they mean."""

    family: Literal["sglang"] = "sglang"
    """The server whose scheduler is simulated."""
    version: Literal["0.5.23", "0.5.10", "0.5.9", "0.5.1"] = NEWEST
    """The version whose rules hold, where versions differ. `0.5.9` stands for 0.5.3 to 0.5.9
    (docs/explanation/sglang.md#older-versions)."""
    schedule_policy: PolicyName = _DEFAULT.schedule_policy
    """Order of the waiting queue: `fcfs`, `lpm`, `dfs-weight`, `lof`, `sjf`, `random`,
    `priority`, `hrrn`, `shortest-prefill-first`, `routing-key`, or `module:Class` for a policy of
    your own (docs/how-to/plug-in.md)."""
    page_size: int = Field(default=_DEFAULT.page_size, ge=1, le=4096)
    """Tokens of a KV page. Prefixes are shared in whole pages. Unit: tokens."""
    max_total_tokens: int | None = Field(default=None, ge=1, le=_MAX_POOL_TOKENS)
    """KV tokens of the pool, floored to whole pages. At least `page_size`. Without it: what fits
    beside the weights (docs/reference/scenario.md#derived-pool-size). Unit: tokens."""
    mem_fraction_static: float | None = Field(default=None, gt=0, le=1)
    """Share of the hardware's memory for weights and KV, from which the pool size is derived:
    0.88 without it. Not together with `max_total_tokens`. Unit: share."""
    kv_cache_dtype: Literal["auto", "bfloat16", "fp8_e4m3", "fp8_e5m2"] = "auto"
    """Number format of the KV cache, from which bytes of a token follow. `auto`: as the
    checkpoint says, else 16 bits."""
    context_length: Count = _DEFAULT.context_length
    """Largest number of tokens of a request, prompt and output together. At least `page_size`.
    Unit: tokens."""
    chunked_prefill_size: ChunkSize = _DEFAULT.chunked_prefill_size
    """Largest number of prefill tokens of a step; a longer prompt is split. A multiple of
    `page_size`, or -1: prompts are never split. Unit: tokens."""
    max_prefill_tokens: Count = _DEFAULT.max_prefill_tokens
    """After this many prefill tokens a pass admits no further request. Unit: tokens."""
    max_running_requests: Count = _DEFAULT.max_running_requests
    """Request slots. Unit: requests."""
    prefill_max_requests: Count | None = _DEFAULT.prefill_max_requests
    """Largest number of requests of one prefill batch. Without it: no limit. Unit: requests."""
    schedule_conservativeness: float = Field(
        default=_DEFAULT.schedule_conservativeness, ge=0, le=1000
    )
    """Scales the new-token ratio that the server starts with."""
    clip_max_new_tokens: Count = _DEFAULT.clip_max_new_tokens
    """Admission never reserves more than this for one output. Unit: tokens."""
    enable_mixed_chunk: bool = _DEFAULT.enable_mixed_chunk
    """A prefill batch includes the decode rows, too. Without effect if prompts are never split."""
    disable_radix_cache: bool = _DEFAULT.disable_radix_cache
    """No prefix is reused. Policies that use the cache, such as `lpm`, become `fcfs`."""
    radix_eviction_policy: EvictionName = "lru"
    """Which unlocked leaves are evicted first: the least recently used (`lru`); those that the
    fewest requests used (`lfu`), in two segments (`slru`); those of the least important requests
    (`priority`); those that a conversation can compute again in time (`tlru`)
    (docs/explanation/sglang.md, rule 12); or those with the least benefit per token
    (`hit-benefit`, docs/explanation/adr/0007-hit-benefit-eviction.md), which SGLang does not have.
    Or `module:Class` (docs/how-to/plug-in.md)."""
    radix_eviction_policy_config: EvictionConfig | None = None
    """Settings of eviction policies `slru` and `tlru`. Required with `tlru`."""
    disable_overlap_schedule: bool = _DEFAULT.disable_overlap_schedule
    """A step is decided only when the result of the previous one is known."""
    enable_priority_scheduling: bool = _DEFAULT.enable_priority_scheduling
    """Order by priority first, and preempt. Only with policy `fcfs`, `lof`, `priority` or one of
    your own."""
    schedule_low_priority_values_first: bool = _DEFAULT.schedule_low_priority_values_first
    """Smaller priority values go first."""
    priority_scheduling_preemption_threshold: WholeNumber = (
        _DEFAULT.priority_scheduling_preemption_threshold
    )
    """A running request is preempted only for one whose priority is better by more than this.
    Unit: priority."""
    disable_priority_preemption: bool = _DEFAULT.disable_priority_preemption
    """Never preempt."""
    retraction_policy: Literal["length", "priority"] = "length"
    """Which request is retracted first when decoding runs out of pages: the one with the fewest
    tokens generated, or the one with the lowest priority."""
    random_seed: int = Field(default=_DEFAULT.random_seed, ge=0)
    """Seed of policy `random`. It is independent of the scenario's `seed`. At most 2**63 - 1."""
    init_new_token_ratio: Share = _DEFAULT.init_new_token_ratio
    """Share of the running requests' remaining output that admission reserves at first. Unit:
    share."""
    min_new_token_ratio_factor: Share = _DEFAULT.min_new_token_ratio_factor
    """The smallest new-token ratio, as a share of the first one. Unit: share."""
    new_token_ratio_decay_steps: Count = _DEFAULT.new_token_ratio_decay_steps
    """Decode steps in which the new-token ratio falls from the first value to the smallest.
    Unit: steps."""
    retract_decode_steps: WholeNumber = _DEFAULT.retract_decode_steps
    """Decode steps that must have room after a retraction. Unit: steps."""
    in_batch_prefix_check_threshold: int = Field(
        default=_DEFAULT.in_batch_prefix_check_threshold, ge=-1, le=MAX_COUNT
    )
    """Under `lpm`, a request with at most this many cached tokens is compared with the requests
    that wait before it. -1: never. Unit: tokens."""
    in_batch_prefix_deprioritize_threshold: WholeNumber = (
        _DEFAULT.in_batch_prefix_deprioritize_threshold
    )
    """Under `lpm`, a request goes last if it shares at least this many tokens with an earlier
    waiting request: that one will put them into the cache. Unit: tokens."""
    load_balance_method: Literal[
        "auto", "round_robin", "follow_bootstrap_room", "total_requests", "total_tokens"
    ] = "auto"
    """How requests are dealt to ranks, if `latency.dp` is above 1
    (docs/explanation/ranks.md#sglang): in turn; at random, by the number that a request has for its
    handover (`follow_bootstrap_room`, only on prefill servers); or to the rank that had the fewest
    requests or tokens when it last said so. `auto`: at random on prefill servers, else in turn."""
    tokenizer_worker_num: int = Field(default=1, ge=1, le=1024)
    """Processes that tokenize requests, also for several ranks. Their times are those of `host`
    (docs/explanation/latency.md#front-ends). Unit: processes."""
    fairness: FairnessConfig | None = None
    """A rule that changes the policy's order so that no request starves
    (docs/explanation/fairness.md), or `module:Class` (docs/how-to/plug-in.md). Without it: the
    policy's order is kept."""
    admission: AdmissionConfig | None = None
    """Which waiting requests a prefill pass considers (docs/explanation/packing.md), or
    `module:Class` (docs/how-to/plug-in.md). Without it: the whole queue, as in SGLang."""
    decode_first: bool = _DEFAULT.decode_first
    """After a prefill step, running requests decode once before the next prefill step."""
    max_queued_requests: Count | None = _DEFAULT.max_queued_requests
    """Largest number of waiting requests (docs/explanation/sglang.md, rule 21). One more is
    aborted, or with priorities the least important one. Without it: no limit. Unit: requests."""
    waiting_timeout_s: Seconds | None = None
    """A request that has waited for longer is aborted. Without it: none is. Unit: s."""
    running_timeout_s: Seconds | None = None
    """A request is aborted if its first batch began longer ago, and it is in a batch. Without it:
    none is. Unit: s."""
    prefill_decode_interval: WholeNumber = _DEFAULT.prefill_decode_interval
    """Decode steps that follow a prefill step, or a mixed one, before the next prefill
    (docs/explanation/sglang.md, rule 20). 0: none. Not together with `decode_first`. Unit:
    steps."""
    prefill_decode_interval_min_bs: WholeNumber = _DEFAULT.prefill_decode_interval_min_bs
    """With fewer running requests than this, `prefill_decode_interval` does not hold prefills
    back. Unit: requests."""
    min_free_slots_delay: WholeNumber = _DEFAULT.min_free_slots_delay
    """While requests run, none is admitted before this many slots are free, at most
    `max_running_requests`. 0 or 1: no such limit. Unit: requests."""
    prefill_delayer: PrefillDelayerSection | None = None
    """Delays prefills so that they are larger: SGLang's `--enable-prefill-delayer`. Only under
    overlap scheduling, and without ranks. Without it: no delay."""
    scheduler_recv_interval: Count = _DEFAULT.scheduler_recv_interval
    """Decode steps from one look for new requests to the next; after a prefill step the server
    looks at once (docs/explanation/sglang.md, rule 19). Unit: steps."""
    cuda_graph_max_bs: Count | None = None
    """Largest number of decode rows that a CUDA graph was captured for. With latency kind
    `aiconfigurator`, a step of fewer decode rows is padded to the next captured number
    (docs/explanation/latency.md#captured-graphs). Without it: no padding. Unit: requests."""
    sliding_window: Count | Literal["model"] | None = None
    """How many tokens before it a token attends to in layers with a sliding window. The KV of these
    layers is in a pool of its own (docs/explanation/sglang.md, rules 22 to 25). `model`: the window
    of `model`, less one, as SGLang takes it for GPT-OSS. Without it: one pool for all layers. Unit:
    tokens."""
    swa_full_tokens_ratio: float = Field(default=0.8, gt=0, le=1)
    """Tokens of the pool of layers with a sliding window, as a share of the other layers' pool.
    Unit: share."""
    disable_hybrid_swa_memory: bool = False
    """One pool for all layers in any case."""
    swa_eviction_interval: Count = 128
    """A decoding request gives back what has left its window once this many tokens have left it
    (SGLang's environment variable `SGLANG_SWA_EVICTION_INTERVAL`). Unit: tokens."""
    speculative_algorithm: Literal["EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"] | None = None
    """Speculative decoding (docs/explanation/speculation.md): drafts of a layer that reads the
    model's hidden states (`EAGLE`, `EAGLE3`, `NEXTN`), of a model of its own (`STANDALONE`), or
    found in earlier text (`NGRAM`). Then `max_running_requests` is 48 if it is not given. Without
    it: no drafts."""
    speculative_num_steps: Annotated[int, Field(ge=1, le=64)] | None = None
    """Passes of the drafter in a step, each of which drafts one token. Without it: 3; with `NGRAM`,
    `speculative_num_draft_tokens`. Unit: passes."""
    speculative_eagle_topk: Literal[1] | None = None
    """Guesses for each place. More than 1 would be a tree of drafts, which is not simulated."""
    speculative_num_draft_tokens: Annotated[int, Field(ge=2, le=65)] | None = None
    """Tokens of a row that a step verifies, its last known one included. With `NGRAM`: 12 without
    it. Other algorithms have 1 + `speculative_num_steps`, whatever is given, as in SGLang. Unit:
    tokens."""
    speculative_draft_model_path: Annotated[str, Field(min_length=1)] | None = None
    """The drafter, named as `model` is. If the pool size is derived, its weights and KV are counted
    (docs/explanation/speculation.md#what-a-drafter-takes-of-the-memory)."""
    max_mamba_cache_size: Count | Literal["model"] | None = None
    """How many states the pool for state-space and linear attention layers has room for: those of
    running requests and those in the prefix cache (docs/explanation/sglang.md, rules 30 to 33).
    `model`: as many as the GPU's memory has room for, as without SGLang's flag. Without it: no
    states are simulated. Unit: states."""
    mamba_full_memory_ratio: float = Field(default=0.9, gt=0, le=1000)
    """With `max_mamba_cache_size: model`: memory for states, as a share of the memory for KV.
    Unit: share."""
    mamba_ssm_dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Number format of the states of linear attention, from which their bytes follow. Without it:
    as the checkpoint says, else 32 bits."""
    mamba_radix_cache_strategy: Literal["auto", "no_buffer", "extra_buffer"] = "auto"
    """Which states the prefix cache gets. `auto`: `no_buffer` if overlap scheduling is off and
    pages have one token, else `extra_buffer`. `no_buffer`: the one after the last token of a
    prefill step or of a request; pages must have one token. `extra_buffer`: one after whole 64
    tokens or pages of a prefill step, or after a multiple of `mamba_track_interval`; requests have
    one or two states more for it."""
    mamba_track_interval: Count = 256
    """With `extra_buffer`: a decoding request tracks its state after each multiple of this. Whole
    pages. Unit: tokens."""
    host_cache: HostCacheSection | None = None
    """Host memory that keeps evicted KV. Without it: evicted KV is lost. Not together with
    `disable_radix_cache`."""
    num_reserved_decode_tokens: WholeNumber = _DEFAULT.num_reserved_decode_tokens
    """On a decode server (docs/explanation/disaggregation.md): tokens that are kept free for each
    request that holds KV, before a further request gets any. Unit: tokens."""
    disaggregation_decode_extra_slots: WholeNumber | None = None
    """On a decode server: request slots beyond `max_running_requests`, for requests whose KV is on
    its way. Without it: twice `max_running_requests` if that is given and at most 32 for each rank,
    else none. Unit: requests."""
    disaggregation_decode_polling_interval: Count = _DEFAULT.disaggregation_decode_polling_interval
    """On a decode server: steps from one look for arrived KV to the next. Unit: steps."""
    disaggregation_decode_enable_radix_cache: bool = False
    """A decode server keeps prefixes, so that less KV has to be sent to it."""
    disaggregation_decode_retraction_backup: Literal["host_pool", "cpu_tensor", "none"] | None = (
        None
    )
    """On a decode server: what becomes of the KV of a retracted request. `host_pool`: it is copied
    to host memory of a fixed size; if it does not fit, the request is aborted. `cpu_tensor`: it is
    copied, and host memory does not run out. `none`: it is lost, and the request is aborted.
    Without it: `cpu_tensor` for models with latent attention or states, with
    `disaggregation_decode_enable_radix_cache` and with priorities that preempt; else `host_pool`.
    """
    hicache_ratio: Annotated[float, Field(gt=0, le=10_000)] | None = None
    """On a decode server: size of `host_pool` as a multiple of the pool; SGLang adds a page.
    Without it: 0.2, or as much as the longest request needs if that is more. On other servers host
    memory has its size in `host_cache`. Unit: factor."""
    decode_max_requests: Count | None = _DEFAULT.decode_max_requests
    """Largest number of rows of a decode step; if more requests run, they take turns
    (docs/explanation/batching.md#decoding-by-turns). Only with `disable_overlap_schedule: true`
    and without `enable_mixed_chunk`. Without it: no limit. Unit: requests."""
    batching: Literal["continuous", "static"] = "continuous"
    """`continuous`: requests join at every pass. `static`: batches start and end together
    (docs/explanation/batching.md)."""
    static_batch_size: Count = 32
    """Under `static`, the largest number of requests of a batch. A batch starts when this many
    wait. Unit: requests."""
    static_max_wait_ms: float = Field(default=100, ge=0, le=_MAX_WAIT_MS)
    """Under `static`, a smaller batch starts when its oldest request has waited this long. Unit:
    ms."""

    @model_validator(mode="after")
    def _check_pages(self) -> Self:
        chunk, page = self.chunked_prefill_size, self.page_size
        if chunk != -1 and chunk % page:
            raise KeysError(
                f"chunked_prefill_size {chunk} is not a multiple of page_size {page}",
                "chunked_prefill_size",
                "page_size",
            )
        for key in ("context_length", "max_total_tokens"):
            num_tokens = getattr(self, key)
            if num_tokens is not None and num_tokens < page:
                raise KeysError(
                    f"{key} {num_tokens} is less than page_size {page}", key, "page_size"
                )
        return self

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.max_total_tokens is not None and self.mem_fraction_static is not None:
            raise KeysError(
                "mem_fraction_static derives max_total_tokens: give one of them, not both",
                "mem_fraction_static",
                "max_total_tokens",
            )
        check_eviction(self.radix_eviction_policy, self.radix_eviction_policy_config)
        if self.host_cache is not None and self.disable_radix_cache:
            raise KeysError(
                "host_cache keeps what the radix cache evicts: it does not go with"
                " disable_radix_cache",
                "host_cache",
                "disable_radix_cache",
            )
        if isinstance(self.fairness, AgingTokensConfig) and self.schedule_policy != "lpm":
            raise KeysError(
                "fairness aging_tokens_per_pass adds to cached tokens: it goes with"
                f" schedule_policy lpm, not {self.schedule_policy}",
                "fairness",
                "schedule_policy",
            )
        if self.decode_first and self.prefill_decode_interval:
            raise KeysError(
                "decode_first is a prefill_decode_interval of 1: give one of them, not both",
                "decode_first",
                "prefill_decode_interval",
            )
        if self.prefill_delayer is not None and self.disable_overlap_schedule:
            raise KeysError(
                "prefill_delayer needs overlap scheduling: it does not go with"
                " disable_overlap_schedule",
                "prefill_delayer",
                "disable_overlap_schedule",
            )
        if self.decode_max_requests is not None:
            if not self.disable_overlap_schedule:
                raise KeysError(
                    "decode_max_requests needs disable_overlap_schedule: true",
                    "decode_max_requests",
                    "disable_overlap_schedule",
                )
            if self.enable_mixed_chunk:
                raise KeysError(
                    "decode_max_requests does not go with enable_mixed_chunk",
                    "decode_max_requests",
                    "enable_mixed_chunk",
                )
        policy = self.schedule_policy
        known = isinstance(policy, UserClass) or policy in PRIORITY_POLICIES
        if self.enable_priority_scheduling and not known:
            raise KeysError(
                f"enable_priority_scheduling goes with schedule_policy"
                f" {', '.join(PRIORITY_POLICIES)}, not {self.schedule_policy}",
                "enable_priority_scheduling",
                "schedule_policy",
            )
        return self
