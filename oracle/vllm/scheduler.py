"""Makes vLLM's scheduler and requests without the rest of an engine.

The scheduler, its queues, the KV cache manager and the block pool are vLLM's own, unmodified.
"""

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

from oracle.vllm.drafts import set_derived, speculative_config
from oracle.vllm.groups import cache_groups, has_states, scheduler_block_size
from oracle.vllm.handover import transfer_config, transfer_params
from oracle.vllm.offload import add_settings, keep_order

Config = dict[str, Any]

END_TOKEN = 2

# Those that the version at hand does not have are not in its cases.
_SETTINGS = (
    "max_model_len", "max_num_batched_tokens", "max_num_seqs", "enable_chunked_prefill",
    "long_prefill_token_threshold", "policy", "async_scheduling", "scheduler_reserve_full_isl",
    "long_prefill_token_threshold_adaptive", "max_num_active_seqs", "watermark",
    "prefill_schedule_interval",
)  # fmt: skip


def build_scheduler(config: Config, preempted: list[str]) -> Scheduler:
    """The scheduler for one GPU; it records which requests it preempts."""
    given = {name: config[name] for name in _SETTINGS if name in config}
    settings = SchedulerConfig(is_encoder_decoder=False, **given)
    cls = AsyncScheduler if config["async_scheduling"] else Scheduler
    scheduler = cls(
        vllm_config=_engine_settings(config, settings),
        kv_cache_config=KVCacheConfig(
            num_blocks=config["num_gpu_blocks"],
            kv_cache_tensors=[],
            **cache_groups(config),
        ),
        block_size=scheduler_block_size(config),
        structured_output_manager=SimpleNamespace(
            should_advance=lambda _request: False,
            accept_tokens=lambda _request, _tokens: True,
            validate_tokens=lambda _request, tokens: tokens,
        ),
    )
    preempt = scheduler._preempt_request

    def preempt_and_note(request: Any, timestamp: float, **options: Any) -> None:
        preempt(request, timestamp, **options)
        preempted.append(request.request_id)

    scheduler._preempt_request = preempt_and_note
    if "offload" in config:
        keep_order(scheduler)
    return scheduler


def _engine_settings(config: Config, settings: Any) -> SimpleNamespace:
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
        kv_transfer_config=transfer_config(config),
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
    if "offload" in config:
        add_settings(whole)
    return whole


def request_maker(config: Config, num_hash_lookahead: int) -> Any:
    """Returns a function that makes a vLLM request of a script.

    `num_hash_lookahead`: tokens behind a block that its hash covers.
    """
    init_none_hash(sha256)
    hasher = None
    if config["enable_prefix_caching"] or "offload" in config:
        more = (num_hash_lookahead,) if num_hash_lookahead else ()
        hasher = get_request_block_hasher(config["block_size"], sha256, *more)

    def new_request(script: Any) -> Any:
        sampling = SamplingParams(ignore_eos=script.ignore_eos, max_tokens=script.max_tokens)
        if params := transfer_params(config, script.rid):
            sampling.extra_args = {"kv_transfer_params": params}
        sampling.update_from_generation_config({}, END_TOKEN)
        return Request(
            request_id=script.rid,
            # A prefill server may shorten it.
            prompt_token_ids=list(script.prompt),
            sampling_params=sampling,
            pooling_params=None,
            arrival_time=script.arrival_ns,
            priority=script.priority,
            block_hasher=hasher,
        )

    return new_request
