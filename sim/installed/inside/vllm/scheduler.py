"""Makes vLLM's scheduler and requests without the rest of an engine.

The scheduler, its queues, the KV cache manager and the block pool are vLLM's own, unmodified.
Settings have the names of vLLM's flags, but for `policy`, `num_gpu_blocks` and `stages`.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from vllm.config.scheduler import SchedulerConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.request import Request

from sim.installed.inside.vllm.drafts import set_derived, speculative_config
from sim.installed.inside.vllm.groups import cache_groups, has_states, scheduler_block_size

Config = dict[str, Any]

END_TOKEN = 2

# `config` lacks those that the installed version does not have.
_SETTINGS = (
    "max_model_len", "max_num_batched_tokens", "max_num_seqs", "enable_chunked_prefill",
    "long_prefill_token_threshold", "policy", "async_scheduling", "scheduler_reserve_full_isl",
    "long_prefill_token_threshold_adaptive", "max_num_active_seqs", "watermark",
    "prefill_schedule_interval",
)  # fmt: skip


def build_scheduler(
    config: Config, connector: Any = None, add_settings: Callable[[Any], None] | None = None
) -> Scheduler:
    """A scheduler of vLLM's with these settings.

    `connector`: the settings of its KV connector, if it has one; `add_settings` adds to the
    engine's settings what the connector reads there.
    """
    given = {name: config[name] for name in _SETTINGS if name in config}
    settings = SchedulerConfig(is_encoder_decoder=False, **given)
    cls = AsyncScheduler if config["async_scheduling"] else Scheduler
    whole = _engine_settings(config, settings, connector)
    if add_settings is not None:
        add_settings(whole)
    return cls(
        vllm_config=whole,
        kv_cache_config=KVCacheConfig(
            num_blocks=config["num_gpu_blocks"],
            **cache_groups(config),
        ),
        block_size=scheduler_block_size(config),
        structured_output_manager=SimpleNamespace(
            should_advance=lambda _request: False,
            accept_tokens=lambda _request, _tokens: True,
            validate_tokens=lambda _request, tokens: tokens,
        ),
    )


def note_preemptions(scheduler: Scheduler, note: Callable[[str, str], None]) -> None:
    """Let `note` hear of each preemption: the request that needs blocks, and its victim."""
    memory, needing = scheduler.kv_cache_manager, [""]
    allocate, preempt = memory.allocate_slots, scheduler._preempt_request

    def allocate_slots(request: Any, *arguments: Any, **options: Any) -> Any:
        needing[0] = request.request_id
        return allocate(request, *arguments, **options)

    def preempt_request(request: Any, *arguments: Any, **options: Any) -> None:
        preempt(request, *arguments, **options)
        note(needing[0], request.request_id)

    memory.allocate_slots, scheduler._preempt_request = allocate_slots, preempt_request


def waiting_requests(scheduler: Scheduler) -> list[Any]:
    """Waiting requests; first those that have blocks, if the version has a queue of them."""
    for name in ("kv_holding_waiting", "skipped_waiting"):
        if hasattr(scheduler, name):
            return [*getattr(scheduler, name), *scheduler.waiting]
    return list(scheduler.waiting)


def _engine_settings(config: Config, settings: Any, connector: Any) -> SimpleNamespace:
    """The engine settings that the scheduler of any version reads."""
    num_stages = config.get("stages", 1)
    num_batches = num_stages + config["async_scheduling"]
    aligns = has_states(config) and config["enable_prefix_caching"]
    whole = SimpleNamespace(
        scheduler_config=settings,
        cache_config=SimpleNamespace(
            num_gpu_blocks=config["num_gpu_blocks"],
            block_size=config["block_size"],
            enable_prefix_caching=config["enable_prefix_caching"],
            mamba_cache_mode="align" if aligns else "none",
            enable_mamba_shared_prefix_checkpoint=False,
        ),
        model_config=SimpleNamespace(
            max_model_len=config["max_model_len"],
            runner_type="generate",
            is_diffusion=False,
            is_encoder_decoder=False,
            is_multimodal_model=False,
            supports_multimodal_inputs=False,
            uses_mrope=False,
            enable_return_routed_experts=False,
            return_sampling_mask=False,
        ),
        parallel_config=SimpleNamespace(
            data_parallel_index=0,
            data_parallel_size=1,
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            pipeline_parallel_size=num_stages,
            tensor_parallel_size=1,
        ),
        observability_config=SimpleNamespace(
            kv_cache_metrics=False,
            enable_mfu_metrics=False,
            per_request_spec_decode_metrics="none",
        ),
        ec_manager_config=SimpleNamespace(get_encoder_cache_manager_obj=lambda: None),
        aux_output_config=SimpleNamespace(enabled=False),
        lora_config=None,
        kv_events_config=None,
        kv_transfer_config=connector,
        ec_transfer_config=None,
        speculative_config=speculative_config(config),
        num_speculative_tokens=0,
        num_lookahead_tokens=0,
        num_prefill_lookahead_tokens=0,
        num_hash_lookahead_tokens=0,
        max_concurrent_batches=num_batches,
        max_in_flight_tokens=num_batches * config["max_num_batched_tokens"],
        is_mm_encoder_only=False,
        # Serves all dense models from version 0.25 on; older schedulers do not ask.
        use_v2_model_runner=True,
    )
    set_derived(whole)
    return whole


def request_maker(config: Config, scheduler: Scheduler) -> Callable[..., Request]:
    """Returns what makes a request of vLLM's for this scheduler."""
    init_none_hash(sha256)
    hasher = None
    if config["enable_prefix_caching"] or "offload" in config:
        # Tokens behind a block that its hash covers; only newer versions have any.
        num_ahead = getattr(scheduler, "num_hash_lookahead_tokens", 0)
        more = (num_ahead,) if num_ahead else ()
        hasher = get_request_block_hasher(config["block_size"], sha256, *more)

    def new_request(
        rid: str,
        prompt: list[int],
        *,
        max_tokens: int,
        ignore_eos: bool,
        arrival_ns: int,
        priority: int | None = None,
        transfer: Config | None = None,
        **_: Any,
    ) -> Request:
        """`transfer`: what a router adds to a request for a KV connector."""
        sampling = SamplingParams(ignore_eos=ignore_eos, max_tokens=max_tokens)
        if transfer is not None:
            sampling.extra_args = {"kv_transfer_params": transfer}
        sampling.update_from_generation_config({}, END_TOKEN)
        return Request(
            request_id=rid,
            prompt_token_ids=prompt,
            sampling_params=sampling,
            pooling_params=None,
            arrival_time=arrival_ns,
            priority=priority or 0,
            block_hasher=hasher,
        )

    return new_request
