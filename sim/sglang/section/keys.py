"""The keys of the `scheduler` section with `family: sglang`, their bounds and combinations."""

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, field_validator, model_validator

from sim.core.declared import NO_FLAG, Bounds, Count, Flag, WholeNumber
from sim.core.errors import InputError, unknown_value
from sim.family.section import ServerSection
from sim.sglang.policies.policy import POLICIES, PRIORITY_POLICIES
from sim.sglang.section.host_cache import HostCacheSection
from sim.sglang.section.rules import (
    AdmissionConfig,
    AgingTokensConfig,
    EvictionConfig,
    EvictionName,
    FairnessConfig,
    PrefillDelayerSection,
    check_eviction,
)
from sim.sglang.settings import SchedulerSettings
from sim.user.objects import OrUserClass, UserClass
from sim.validation import KeysError, keys_of

_MAX_WAIT_MS = 10**6
_MAX_TIMEOUT_S = 10**7
_MAX_POOL_TOKENS = 2**40


def _check_policy(name: str) -> str:
    if name not in POLICIES:
        raise ValueError(unknown_value("policy", name, POLICIES))
    return name


Seconds = Annotated[float, Bounds(gt=0, le=_MAX_TIMEOUT_S)]
PolicyName = Annotated[Annotated[str, AfterValidator(_check_policy)] | UserClass, OrUserClass()]

# Two keys that are not given together, and the reason, which names the second one.
_EITHER = (
    ("mem_fraction_static", "max_total_tokens", "derives {}: give one of them, not both"),
    (
        "host_cache",
        "disable_radix_cache",
        "keeps what the radix cache evicts: it does not go with {}",
    ),
    ("decode_first", "prefill_decode_interval", "is a {} of 1: give one of them, not both"),
    (
        "prefill_delayer",
        "disable_overlap_schedule",
        "needs overlap scheduling: it does not go with {}",
    ),
    ("decode_max_requests", "enable_mixed_chunk", "does not go with {}"),
)

if TYPE_CHECKING:

    class _SchedulerKeys(ServerSection, SchedulerSettings):
        pass
else:
    _SchedulerKeys = keys_of(SchedulerSettings, ServerSection)


class SglangKeys(_SchedulerKeys):
    """The keys of `SchedulerSettings`, and those that the scheduler does not get as they are.

    `sim.sglang.section.scheduler.SglangSection` says what they mean.
    """

    # Set where the role is known: the servers only decode.
    _decodes: bool = PrivateAttr(default=False)

    family: Annotated[Literal["sglang"], NO_FLAG] = "sglang"
    """The server whose scheduler is simulated."""
    schedule_policy: PolicyName = "fcfs"
    """Order of the waiting queue: `fcfs`, `lpm`, `dfs-weight`, `lof`, `sjf`, `random`,
    `priority`, `hrrn`, `shortest-prefill-first`, `routing-key`, or `module:Class` for a policy of
    your own (docs/how-to/plug-in.md)."""
    max_total_tokens: Annotated[int, Bounds(ge=1, le=_MAX_POOL_TOKENS)] | None = None
    """KV tokens of the pool, floored to whole pages. At least `page_size`. Without it: what fits
    beside the weights (docs/reference/scenario.md#derived-pool-size). Unit: tokens."""
    mem_fraction_static: Annotated[float, Bounds(gt=0, le=1)] | None = None
    """Share of the hardware's memory for weights and KV, from which the pool size is derived:
    0.88 without it. Not together with `max_total_tokens`. Unit: share."""
    kv_cache_dtype: Literal["auto", "bfloat16", "fp8_e4m3", "fp8_e5m2"] = "auto"
    """Number format of the KV cache, from which bytes of a token follow. `auto`: as the
    checkpoint says, else 16 bits."""
    radix_eviction_policy: EvictionName = "lru"
    """Which unlocked leaves are evicted first: the least recently used (`lru`); those that the
    fewest requests used (`lfu`), in two segments (`slru`); those of the least important requests
    (`priority`); those that a conversation can compute again in time (`tlru`)
    (docs/explanation/sglang.md, rule 12); or those with the least benefit per token
    (`hit-benefit`, docs/explanation/adr/0007-hit-benefit-eviction.md), which SGLang does not have.
    Or `module:Class` (docs/how-to/plug-in.md)."""
    radix_eviction_policy_config: Annotated[EvictionConfig | None, NO_FLAG] = None
    """Settings of eviction policies `slru` and `tlru`. Required with `tlru`."""
    load_balance_method: Literal[
        "auto", "round_robin", "follow_bootstrap_room", "total_requests", "total_tokens"
    ] = "auto"
    """How requests are dealt to ranks, if `latency.dp` is above 1
    (docs/explanation/ranks.md#sglang): in turn; at random, by the number that a request has for its
    handover (`follow_bootstrap_room`, only on prefill servers); or to the rank that had the fewest
    requests or tokens when it last said so. `auto`: at random on prefill servers, else in turn."""
    tokenizer_worker_num: Annotated[int, Bounds(ge=1, le=1024)] = 1
    """Processes that tokenize requests, also for several ranks. Their times are those of `host`
    (docs/explanation/latency.md#front-ends). Unit: processes."""
    fairness: Annotated[FairnessConfig | None, NO_FLAG] = None
    """A rule that changes the policy's order so that no request starves
    (docs/explanation/fairness.md), or `module:Class` (docs/how-to/plug-in.md). Without it: the
    policy's order is kept."""
    admission: Annotated[AdmissionConfig | None, NO_FLAG] = None
    """Which waiting requests a prefill pass considers (docs/explanation/packing.md), or
    `module:Class` (docs/how-to/plug-in.md). Without it: the whole queue, as in SGLang."""
    waiting_timeout_s: Annotated[Seconds | None, Flag(variable="SGLANG_REQ_WAITING_TIMEOUT")] = None
    """A request that has waited for longer is aborted. Without it: none is. Unit: s."""
    running_timeout_s: Annotated[Seconds | None, Flag(variable="SGLANG_REQ_RUNNING_TIMEOUT")] = None
    """A request is aborted if its first batch began longer ago, and it is in a batch. Without it:
    none is. Unit: s."""
    prefill_delayer: Annotated[PrefillDelayerSection | None, NO_FLAG] = None
    """Delays prefills so that they are larger: SGLang's `--enable-prefill-delayer`. Only under
    overlap scheduling. Without it: no delay."""
    cuda_graph_max_bs: Count | None = None
    """Largest number of decode rows that a CUDA graph was captured for. With latency kind
    `aiconfigurator`, a step of fewer decode rows is padded to the next captured number
    (docs/explanation/latency.md#captured-graphs). Without it: no padding. Unit: requests."""
    sliding_window: Annotated[Count | Literal["model"] | None, NO_FLAG] = None
    """How many tokens before it a token attends to in layers with a sliding window. The KV of these
    layers is in a pool of its own (docs/explanation/sglang.md, rules 22 to 25). `model`: the window
    of `model`, less one, as SGLang takes it for GPT-OSS. Without it: one pool for all layers. Unit:
    tokens."""
    swa_full_tokens_ratio: Annotated[float, Bounds(gt=0, le=1)] = 0.8
    """Tokens of the pool of layers with a sliding window, as a share of the other layers' pool.
    Unit: share."""
    disable_hybrid_swa_memory: bool = False
    """One pool for all layers in any case."""
    swa_eviction_interval: Annotated[Count, Flag(variable="SGLANG_SWA_EVICTION_INTERVAL")] = 128
    """A decoding request gives back what has left its window once this many tokens have left it
    (SGLang's environment variable `SGLANG_SWA_EVICTION_INTERVAL`). Unit: tokens."""
    speculative_algorithm: Annotated[
        Literal["EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"] | None, NO_FLAG
    ] = None
    """Speculative decoding (docs/explanation/speculation.md): drafts of a layer that reads the
    model's hidden states (`EAGLE`, `EAGLE3`, `NEXTN`), of a model of its own (`STANDALONE`), or
    found in earlier text (`NGRAM`). Then `max_running_requests` is 48 if it is not given. Without
    it: no drafts."""
    speculative_num_steps: Annotated[Annotated[int, Bounds(ge=1, le=64)] | None, NO_FLAG] = None
    """Passes of the drafter in a step, each of which drafts one token. Without it: 3; with `NGRAM`,
    `speculative_num_draft_tokens`. Unit: passes."""
    speculative_eagle_topk: Annotated[Literal[1] | None, NO_FLAG] = None
    """Guesses for each place. More than 1 would be a tree of drafts, which is not simulated."""
    speculative_num_draft_tokens: Annotated[Annotated[int, Bounds(ge=2, le=65)] | None, NO_FLAG] = (
        None
    )
    """Tokens of a row that a step verifies, its last known one included. With `NGRAM`: 12 without
    it. Other algorithms have 1 + `speculative_num_steps`, whatever is given, as in SGLang. Unit:
    tokens."""
    speculative_draft_model_path: Annotated[Annotated[str, Field(min_length=1)] | None, NO_FLAG] = (
        None
    )
    """The drafter, named as `model` is. If the pool size is derived, its weights and KV are counted
    (docs/explanation/speculation.md#what-a-drafter-takes-of-the-memory)."""
    max_mamba_cache_size: Count | Literal["model"] | None = None
    """How many states the pool for state-space and linear attention layers has room for: those of
    running requests and those in the prefix cache (docs/explanation/sglang.md, rules 30 to 33).
    `model`: as many as the GPU's memory has room for, as without SGLang's flag. Without it: no
    states are simulated. Unit: states."""
    mamba_full_memory_ratio: Annotated[float, Bounds(gt=0, le=1000)] = 0.9
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
    host_cache: Annotated[HostCacheSection | None, NO_FLAG] = None
    """Host memory that keeps evicted KV. Without it: evicted KV is lost. Not together with
    `disable_radix_cache`."""
    disaggregation_decode_extra_slots: WholeNumber | None = None
    """On a decode server: request slots beyond `max_running_requests`, for requests whose KV is on
    its way. Without it: twice `max_running_requests` if that is given and at most 32 for each rank,
    else none. Unit: requests."""
    disaggregation_decode_retraction_backup: Literal["host_pool", "cpu_tensor", "none"] | None = (
        None
    )
    """On a decode server: what becomes of the KV of a retracted request. `host_pool`: it is copied
    to host memory of a fixed size; if it does not fit, the request is aborted. `cpu_tensor`: it is
    copied, and host memory does not run out. `none`: it is lost, and the request is aborted.
    Without it: `cpu_tensor` for models with latent attention or states, with
    `disaggregation_decode_enable_radix_cache` and with priorities that preempt; else `host_pool`.
    """
    hicache_ratio: Annotated[float, Bounds(gt=0, le=10_000)] | None = None
    """On a decode server: size of `host_pool` as a multiple of the pool; SGLang adds a page.
    Without it: 0.2, or as much as the longest request needs if that is more. On other servers host
    memory has its size in `host_cache`. Unit: factor."""
    batching: Annotated[Literal["continuous", "static"], NO_FLAG] = "continuous"
    """`continuous`: requests join at every pass. `static`: batches start and end together
    (docs/explanation/batching.md)."""
    static_batch_size: Annotated[Count, NO_FLAG] = 32
    """Under `static`, the largest number of requests of a batch. A batch starts when this many
    wait. Unit: requests."""
    static_max_wait_ms: Annotated[float, Bounds(ge=0, le=_MAX_WAIT_MS), NO_FLAG] = 100
    """Under `static`, a smaller batch starts when its oldest request has waited this long. Unit:
    ms."""
    engine: Annotated[Annotated[str, Field(min_length=1)] | None, NO_FLAG] = None
    """The folder of a Python environment with an SGLang whose own scheduler decides
    (docs/how-to/engine.md). Without it: the rules of `version` decide."""

    @field_validator("chunked_prefill_size")
    @classmethod
    def _check_chunk(cls, num_tokens: int) -> int:
        if num_tokens != -1 and num_tokens < 1:
            raise ValueError(f"must be -1 (off) or at least 1, got {num_tokens}")
        return num_tokens

    @property
    def decodes(self) -> bool:
        """Whether the section is that of decode servers (`SglangSection.of_role`)."""
        return self._decodes

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
        for key, other, reason in _EITHER:
            if getattr(self, key) and getattr(self, other):
                raise KeysError(f"{key} {reason.format(other)}", key, other)
        check_eviction(self.radix_eviction_policy, self.radix_eviction_policy_config)
        if isinstance(self.fairness, AgingTokensConfig) and self.schedule_policy != "lpm":
            raise KeysError(
                "fairness aging_tokens_per_pass adds to cached tokens: it goes with"
                f" schedule_policy lpm, not {self.schedule_policy}",
                "fairness",
                "schedule_policy",
            )
        if self.decode_max_requests is not None and not self.disable_overlap_schedule:
            raise KeysError(
                "decode_max_requests needs disable_overlap_schedule: true",
                "decode_max_requests",
                "disable_overlap_schedule",
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


def check_delayer_of_ranks(section: SglangKeys) -> None:
    """Refuse intervals that each rank holds for itself, since the delayer asks all ranks at once.

    SGLang 0.5.23's `_should_defer_prefill` (managers/scheduler.py) comes before the pass in which
    the ranks gather what each could prefill. A rank with few running requests would gather alone.

    Raises InputError: the settings have both.
    """
    if section.prefill_delayer is None:
        return
    for key in ("decode_first", "prefill_decode_interval_min_bs"):
        if getattr(section, key):
            reason = (
                f"does not go with {key} and latency.dp above 1: SGLang's ranks would wait for each"
                " other in different places (managers/scheduler.py, _should_defer_prefill)"
            )
            raise InputError(reason, key=("scheduler", "prefill_delayer"))
