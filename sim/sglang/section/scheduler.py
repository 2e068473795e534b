"""The `scheduler` section with `family: sglang`: SGLang's flags, their bounds and combinations."""

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sim.core.errors import InputError
from sim.core.messages import unknown_value
from sim.core.units import ms_to_ns
from sim.latency.loading import LoadTimes
from sim.latency.stages import spare_layers_last
from sim.server_section import ServerSection, kv_format_of_flag
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import POLICIES, PRIORITY_POLICIES
from sim.sglang.scheduler.batching import StaticSettings
from sim.sglang.section.admission import AdmissionConfig, admission_settings
from sim.sglang.section.fairness import AgingTokensConfig, FairnessConfig, fairness_settings
from sim.sglang.section.host_cache import HostCacheSection
from sim.sglang.version_rules import NEWEST
from sim.strict_model import MAX_COUNT, Count, KeysError
from sim.user_class import OrUserClass, UserClass
from sim.user_objects import FailAt

if TYPE_CHECKING:
    from sim.latency.shapes import ModelShape

_DEFAULT = SchedulerConfig()
_MAX_WAIT_MS = 10**6
_MAX_POOL_TOKENS = 2**40
# SGLang's default depends on the GPU and the chunk size; it is 0.88 for one large GPU.
DEFAULT_MEM_FRACTION_STATIC = 0.88
# Its default of `swa_full_tokens_ratio`.
_WINDOW_SHARE = 0.8
# SGLang multiplies `schedule_conservativeness` by this under DP attention.
_CONSERVATIVENESS_OF_RANKS = 0.3
# Settings of SchedulerConfig that are not simply copied from a key of the same name.
_DERIVED = {
    "max_total_tokens", "schedule_policy", "radix_eviction_policy", "fairness", "admission",
    "static_batching", "host_cache", "user", "micro_batches",
}  # fmt: skip


def _check_policy(name: str) -> str:
    if name not in POLICIES:
        raise ValueError(unknown_value("policy", name, POLICIES))
    return name


def _check_chunk(num_tokens: int) -> int:
    if num_tokens != -1 and num_tokens < 1:
        raise ValueError(f"must be -1 (off) or at least 1, got {num_tokens}")
    return num_tokens


WholeNumber = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Share = Annotated[float, Field(ge=0, le=1)]
PolicyName = Annotated[Annotated[str, AfterValidator(_check_policy)] | UserClass, OrUserClass()]
EvictionName = Annotated[Literal["lru", "lfu", "hit-benefit"] | UserClass, OrUserClass()]
ChunkSize = Annotated[int, Field(le=MAX_COUNT), AfterValidator(_check_chunk)]


class SglangSection(ServerSection):
    """SGLang's scheduler.

    Names and defaults are those of SGLang 0.5.23's flags, with underscores.
    docs/explanation/sglang.md explains what they do.
    """

    family: Literal["sglang"] = "sglang"
    """The server whose scheduler is simulated."""
    version: Literal["0.5.23", "0.5.10", "0.5.9", "0.5.1"] = NEWEST
    """The version whose rules hold, where versions differ. `0.5.9` stands for 0.5.3 to 0.5.9
    (docs/explanation/sglang.md#older-versions)."""
    schedule_policy: PolicyName = _DEFAULT.schedule_policy
    """Order of the waiting queue: `fcfs`, `lpm`, `dfs-weight`, `lof`, `sjf`, `random`,
    `priority`, `hrrn`, `shortest-prefill-first`, or `module:Class` for a policy of your own
    (docs/how-to/plug-in.md)."""
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
    """Which unlocked leaves are evicted first: the least recently used; those that the fewest
    requests used; or those with the least benefit per token
    (docs/explanation/adr/0007-hit-benefit-eviction.md), which SGLang does not have. Or
    `module:Class` (docs/how-to/plug-in.md)."""
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
    load_balance_method: Literal["round_robin", "total_requests", "total_tokens"] = "round_robin"
    """How requests are dealt to ranks, if `latency.dp` is above 1
    (docs/explanation/ranks.md#sglang): in turn, or to the rank that had the fewest requests or
    tokens when it last said so."""
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
    scheduler_recv_interval: Count = _DEFAULT.scheduler_recv_interval
    """Decode steps from one look for new requests to the next; after a prefill step the server
    looks at once (docs/explanation/sglang.md, rule 19). Unit: steps."""
    cuda_graph_max_bs: Count | None = None
    """Largest number of decode rows that a CUDA graph was captured for. With latency kind
    `aiconfigurator`, a step of fewer decode rows is padded to the next captured number
    (docs/explanation/latency.md#captured-graphs). Without it: no padding. Unit: requests."""
    host_cache: HostCacheSection | None = None
    """Host memory that keeps evicted KV. Without it: evicted KV is lost. Not together with
    `disable_radix_cache`."""
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

    # ---- what every family's section says --------------------------------------------------------

    @property
    def max_rows(self) -> int:
        return self.max_running_requests

    @property
    def max_step_tokens(self) -> int:
        return max(self.chunked_prefill_size, self.max_prefill_tokens)

    @property
    def pool_tokens(self) -> int | None:
        return self.max_total_tokens

    @property
    def runner_keys(self) -> tuple[str, ...]:
        return "page_size", "max_total_tokens", "mem_fraction_static", "max_running_requests"

    @property
    def graph_sizes(self) -> tuple[int, ...]:
        """SGLang 0.5.9: `_generate_cuda_graph_batch_sizes` of server_args.py."""
        if (largest := self.cuda_graph_max_bs) is None:
            return ()
        sizes = (1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, largest, 32))
        return (*(size for size in sizes if size < largest), largest)

    @property
    def longest_request(self) -> tuple[str, int | None]:
        return "context_length", self.context_length

    @property
    def pool_key(self) -> str:
        return "max_total_tokens"

    @property
    def memory_share(self) -> tuple[str, float]:
        share = self.mem_fraction_static
        return "mem_fraction_static", DEFAULT_MEM_FRACTION_STATIC if share is None else share

    @property
    def kv_cache_format(self) -> str | None:
        return kv_format_of_flag(self.kv_cache_dtype)

    @property
    def window_share(self) -> float | None:
        """SGLang's `swa_full_tokens_ratio` (`model_runner_kv_cache_mixin.py` of 0.5.9)."""
        return _WINDOW_SHARE

    def check_real_run(self) -> tuple[str, str] | None:
        if self.host_cache is None:
            return None
        return "host_cache", "the real runner keeps no KV in host memory"

    def check_model(self, *, is_known: bool) -> None:
        needs_model = (
            self.host_cache is not None and self.host_cache.load_bandwidth_gb_s is not None
        )
        if needs_model and not is_known:
            raise KeysError(
                "scheduler.host_cache.load_bandwidth_gb_s needs the model, which says how many"
                " bytes a token has: give load_tokens_per_s without one",
                "scheduler",
                "model",
            )

    def load_times(self, model: "ModelShape | None", num_devices: int) -> LoadTimes | None:
        return None if self.host_cache is None else self.host_cache.load_times(model, num_devices)

    def with_user_code(
        self, config: SchedulerConfig, base_dir: Path, fail_at: FailAt
    ) -> SchedulerConfig:
        from sim.sglang.user_rules import load_user_rules  # noqa: PLC0415 - most runs have none

        return replace(config, user=load_user_rules(self, base_dir, fail_at))

    def config(self, pool_tokens: int) -> SchedulerConfig:
        """The scheduler's settings with a pool of `pool_tokens` tokens, without users' rules.

        Raises:
            InputError: host memory has no room for a page.
        """
        names = {field.name for field in fields(SchedulerConfig)} - _DERIVED
        config = SchedulerConfig(
            **{name: getattr(self, name) for name in names},
            max_total_tokens=pool_tokens,
            schedule_policy=str(self.schedule_policy),
            radix_eviction_policy=str(self.radix_eviction_policy),
            fairness=fairness_settings(self.fairness),
            admission=admission_settings(self.admission),
            static_batching=self._static_batching(),
        )
        if self.host_cache is None:
            return config
        host_cache = self.host_cache.settings(config.pool_tokens, config.page_size)
        return replace(config, host_cache=host_cache)

    def of_rank(self, num_ranks: int) -> Self:
        """Slots and chunk size are divided, and admission dares more, as in SGLang 0.5.23.

        Source: `handle_data_parallelism` in arg_groups/parallel_hook.py, and
        `requested_max_running_requests_per_worker` in model_executor/pool_configurator.py.
        """
        chunk = self.chunked_prefill_size
        if chunk > 0:
            chunk //= num_ranks
            if chunk < self.page_size:
                raise InputError(
                    f"{self.chunked_prefill_size} over {num_ranks} ranks (latency.dp) is less"
                    f" than page_size {self.page_size} for each",
                    key=("scheduler", "chunked_prefill_size"),
                )
        settings = {
            "chunked_prefill_size": chunk,
            "max_running_requests": max(1, self.max_running_requests // num_ranks),
            "schedule_conservativeness": self.schedule_conservativeness
            * _CONSERVATIVENESS_OF_RANKS,
        }
        return self.model_copy(update=settings)

    def stage_layers(self, num_layers: int, num_stages: int) -> list[int]:
        return spare_layers_last(num_layers, num_stages)

    def pipeline_config(self, config: SchedulerConfig, num_stages: int) -> SchedulerConfig:
        """SGLang's loop for pipelines (`event_loop_pp`) does not overlap steps of one batch."""
        if self.batching == "static":
            reason = "static batches are not simulated with latency.pp above 1"
            raise InputError(reason, key=("scheduler", "batching"))
        return replace(config, disable_overlap_schedule=True, micro_batches=num_stages)

    def num_front_ends(self, num_ranks: int) -> int:
        return self.tokenizer_worker_num

    def _static_batching(self) -> StaticSettings | None:
        if self.batching == "continuous":
            return None
        return StaticSettings(self.static_batch_size, ms_to_ns(self.static_max_wait_ms))
