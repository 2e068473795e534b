"""The `scheduler` section with `family: sglang`: what the keys mean for a server."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import model_validator

from sim.core.errors import InputError
from sim.core.units import ms_to_ns, seconds_to_ns
from sim.engine.server_config import BOTH, DECODE
from sim.engine.store import StoreSettings
from sim.family.section import Drafts, MemoryForKv, kv_format_of_flag
from sim.installed.environment import not_asked
from sim.latency.wrappers import LoadTimes, spare_layers_last
from sim.sglang.config import SchedulerConfig, StaticSettings
from sim.sglang.section.engine import with_engine
from sim.sglang.section.keys import SglangKeys, check_delayer_of_ranks
from sim.sglang.section.pools import STATES as STATES_KEY
from sim.sglang.section.pools import WINDOW as WINDOW_KEY
from sim.sglang.section.pools import (
    check_states,
    check_window,
    has_window_pool,
    most_running,
    state_settings,
    states_in,
    tokens_beside_states,
    tokens_beside_windows,
    window_of_model,
    window_settings,
)
from sim.sglang.section.roles import load_balance_method, with_role, without_unsimulated
from sim.sglang.section.rules import (
    admission_settings,
    eviction_settings,
    fairness_settings,
)
from sim.sglang.section.speculation import (
    check_drafts_of_ranks,
    check_speculation,
    drafts_of,
    speculative_settings,
    with_default_slots,
)
from sim.sglang.settings import SchedulerSettings
from sim.user.objects import FailAt
from sim.validation import KeysError

if TYPE_CHECKING:
    from sim.latency.shapes import ModelShape

# SGLang's default depends on the GPU and the chunk size; it is 0.88 for one large GPU.
DEFAULT_MEM_FRACTION_STATIC = 0.88
# SGLang multiplies `schedule_conservativeness` by this under DP attention.
_CONSERVATIVENESS_OF_RANKS = 0.3
_STATE_ELEMENT_BYTES: dict[str | None, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
_SETTINGS = [field.name for field in fields(SchedulerSettings)]


def _optional_ns(seconds: float | None) -> int | None:
    return None if seconds is None else seconds_to_ns(seconds)


class SglangSection(SglangKeys):
    """SGLang's scheduler.

    Names and defaults are those of SGLang 0.5.23's flags, with underscores.
    docs/explanation/sglang.md explains what they do.
    """

    @model_validator(mode="before")
    @classmethod
    def _prepare(cls, given: Any) -> Any:
        return with_default_slots(without_unsimulated(given))

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        check_speculation(self)
        check_window(self)
        check_states(self)
        return self

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
    def sends_whole_pages(self) -> bool:
        """SGLang 0.5.23 refuses others (`disaggregation/common/conn.py:1321`)."""
        return True

    @property
    def memory_share(self) -> tuple[str, float]:
        share = self.mem_fraction_static
        return "mem_fraction_static", DEFAULT_MEM_FRACTION_STATIC if share is None else share

    @property
    def kv_cache_format(self) -> str | None:
        return kv_format_of_flag(self.kv_cache_dtype)

    @property
    def state_element_bytes(self) -> int | None:
        return _STATE_ELEMENT_BYTES.get(self.mamba_ssm_dtype)

    def window_share(self, model: "ModelShape") -> float | None:
        if self.disable_hybrid_swa_memory or not has_window_pool(model):
            return 1.0
        return self.swa_full_tokens_ratio

    def tokens_in(self, model: "ModelShape | None", free: MemoryForKv) -> int | None:
        beside_states = tokens_beside_states(self, model, free)
        return tokens_beside_windows(self, model, free) if beside_states is None else beside_states

    @property
    def drafts(self) -> Drafts | None:
        return drafts_of(self)

    def check_real_run(self) -> tuple[str, str] | None:
        if self.engine is not None:
            return "engine", "the real runner asks no installed engine"
        if self.speculative_algorithm is not None:
            return "speculative_algorithm", "the real runner drafts no tokens"
        if self.sliding_window is not None:
            return WINDOW_KEY, "the real runner serves no model with sliding windows"
        if self.max_mamba_cache_size is not None:
            return STATES_KEY, "the real runner serves no model with state-space layers"
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

    def with_load_times(
        self,
        config: SchedulerConfig,
        find_model: "Callable[[], ModelShape | None]",
        num_devices: int,
    ) -> SchedulerConfig:
        if config.host_cache is None or self.host_cache is None:
            return config
        drafts, model = self.drafts, find_model()
        if self.host_cache.size_gb is not None and drafts and drafts.drafter != "nothing":
            reason = "is not simulated with a drafter, whose KV takes a part of it: give ratio"
            raise InputError(reason, key=("scheduler", "host_cache", "size_gb"))
        sized = self.host_cache.sized(config.host_cache, model, num_devices, config.page_size)
        host_cache = self.host_cache.with_copy_times(
            sized, model, num_devices, has_windows=config.window is not None
        )
        return replace(config, host_cache=host_cache)

    @property
    def uses_store(self) -> bool:
        return self.host_cache is not None and self.host_cache.storage is not None

    def with_store(self, config: SchedulerConfig, store: StoreSettings) -> SchedulerConfig:
        """The settings with storage below host memory."""
        section = None if self.host_cache is None else self.host_cache.storage
        if section is None or config.host_cache is None:
            return config
        storage = section.settings(store, config.page_size)
        return replace(config, host_cache=replace(config.host_cache, storage=storage))

    def with_user_code(
        self, config: SchedulerConfig, base_dir: Path, fail_at: FailAt
    ) -> SchedulerConfig:
        # Loaded only here, as most runs have no such classes.
        from sim.sglang.user_rules import check_keeper, load_user_rules  # noqa: PLC0415

        config = replace(config, user=load_user_rules(self, base_dir, fail_at))
        check_keeper(config, fail_at)
        return with_engine(self.engine, config, base_dir, fail_at)

    def for_model(self, find_model: "Callable[[], ModelShape | None]") -> Self:
        if self.sliding_window != "model":
            return self
        return self.model_copy(update={WINDOW_KEY: window_of_model(find_model())})

    def for_memory(
        self,
        find_model: "Callable[[], ModelShape | None]",
        find_memory: "Callable[[tuple[str, ...]], MemoryForKv]",
    ) -> Self:
        if self.max_mamba_cache_size != "model":
            return self
        num_states = states_in(self, find_model(), find_memory(("scheduler", STATES_KEY)))
        return self.model_copy(update={STATES_KEY: num_states})

    def config(self, pool_tokens: int) -> SchedulerConfig:
        """The scheduler's settings with a pool of `pool_tokens` tokens, without users' rules.

        Raises InputError: host memory has no room for a page.
        """
        config = SchedulerConfig(
            **{name: getattr(self, name) for name in _SETTINGS},
            max_total_tokens=pool_tokens,
            schedule_policy=str(self.schedule_policy),
            load_balance_method=load_balance_method(self.load_balance_method),
            radix_eviction_policy=str(self.radix_eviction_policy),
            radix_eviction_policy_config=eviction_settings(self.radix_eviction_policy_config),
            fairness=fairness_settings(self.fairness),
            admission=admission_settings(self.admission),
            static_batching=self._static_batching(),
            waiting_timeout_ns=_optional_ns(self.waiting_timeout_s),
            running_timeout_ns=_optional_ns(self.running_timeout_s),
            prefill_delayer=None
            if self.prefill_delayer is None
            else self.prefill_delayer.settings(),
            **speculative_settings(self),
        )
        states = state_settings(self, config)
        most = most_running(self, states)
        if most is not None:
            config = replace(config, max_running_requests=min(most, config.max_running_requests))
        config = replace(config, window=window_settings(self, config), states=states)
        if self.host_cache is None:
            return config
        host_cache = self.host_cache.settings(config.pool_tokens, config.page_size)
        return replace(config, host_cache=host_cache)

    def of_role(self, role: str) -> Self:
        if role != DECODE:
            return self
        # Decode servers have a key of their own for the cache.
        is_cached = self.disaggregation_decode_enable_radix_cache
        section = self.model_copy(update={"disable_radix_cache": not is_cached})
        section._decodes = True
        return section

    def with_role(
        self, config: SchedulerConfig, role: str, model: "ModelShape | None"
    ) -> SchedulerConfig:
        if config.engine is not None and role != BOTH:
            raise not_asked(f"role {role}")
        return with_role(self, config, role, model)

    def of_rank(self, num_ranks: int) -> Self:
        """Slots and chunk size are divided, and admission is less conservative.

        Source: SGLang 0.5.23, `handle_data_parallelism` in arg_groups/parallel_hook.py, and
        `requested_max_running_requests_per_worker` in model_executor/pool_configurator.py.
        """
        if self.engine is not None:
            raise not_asked("latency.dp above 1")
        check_drafts_of_ranks(self)
        check_delayer_of_ranks(self)
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
        if isinstance(self.max_mamba_cache_size, int):
            settings[STATES_KEY] = max(1, self.max_mamba_cache_size // num_ranks)
        section = self.model_copy(update=settings)
        # `extra_slots` asks whether it was given; `model_copy` has marked it as given.
        if "max_running_requests" not in self.model_fields_set:
            section.model_fields_set.discard("max_running_requests")
        return section

    def stage_layers(self, num_layers: int, num_stages: int) -> list[int]:
        return spare_layers_last(num_layers, num_stages)

    def pipeline_config(self, config: SchedulerConfig, num_stages: int) -> SchedulerConfig:
        """SGLang's loop for pipelines (`event_loop_pp`) does not overlap steps of one batch."""
        if self.min_free_slots_delay:
            reason = (
                "SGLang refuses it with latency.pp above 1: the slots of a micro-batch are limited"
                " in another way (arg_groups/validation_hook.py, check_pipeline_parallel_compat)"
            )
            raise InputError(reason, key=("scheduler", "min_free_slots_delay"))
        if self.prefill_delayer is not None:
            reason = "needs overlap scheduling, which latency.pp above 1 does not have"
            raise InputError(reason, key=("scheduler", "prefill_delayer"))
        if self.host_cache is not None and self.host_cache.size_gb is not None:
            reason = "is not simulated with latency.pp above 1: give ratio"
            raise InputError(reason, key=("scheduler", "host_cache", "size_gb"))
        return replace(config, disable_overlap_schedule=True, micro_batches=num_stages)

    def refuses_stages(self, role: str) -> str | None:
        return None

    def num_front_ends(self, num_ranks: int) -> int:
        return self.tokenizer_worker_num

    def _static_batching(self) -> StaticSettings | None:
        if self.batching == "continuous":
            return None
        return StaticSettings(self.static_batch_size, ms_to_ns(self.static_max_wait_ms))
