"""Makes SGLang's own scheduler, without the model and the processes around it."""

from array import array
from collections import deque
from types import SimpleNamespace
from typing import Any

from sglang.srt.configs.model_config import ModelImpl
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.managers import prefill_delayer, scheduler
from sglang.srt.managers.min_free_slots_delayer import MinFreeSlotsDelayer, resolve_min_free_slots
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.managers.scheduler_components.batch_result_processor import (
    SchedulerBatchResultProcessor,
)
from sglang.srt.runtime_context import get_context, get_parallel
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from sim.installed.inside.sglang.memory import build_memory, pool_tokens
from sim.installed.inside.sglang.quiet import Quiet
from sim.installed.inside.sglang.settings import DEFAULTS, Config, server_arguments
from sim.installed.inside.sglang.watched import WatchedScheduler

_SWITCHED_OFF = (
    "enable_hicache_storage", "enable_lmcache", "enable_unified_cache_external_linker",
    "enable_hisparse", "enable_lora", "enable_unified_memory", "require_mlp_sync", "enable_fpm",
    "_engine_paused", "attn_dp_enabled", "enable_pdmux", "enable_overlap_mlx",
    "abort_on_priority_when_disabled", "enable_skip_finishing_decode", "_sched_idled",
    "enable_continuous_input_polling",
)  # fmt: skip
_ABSENT = (
    "dllm_config", "hisparse_coordinator", "decode_offload_manager", "draft_worker",
    "lora_drainer", "min_free_slots_delayer", "dynamic_chunk_sizer", "truncation_align_size",
    "scripted_scheduler_hook", "scheduler_stage_metrics", "metrics_collector",
    "_pending_chunked_abort_req", "chunked_req", "last_batch", "cur_batch_for_debug",
    "max_new_tokens_limit", "mm_receiver",
)  # fmt: skip


# The token that ends an answer.
_END_TOKEN = 2


def build_scheduler(config: Config) -> Any:
    """A scheduler as its server's process would have it after its start."""
    stages = {"pp_rank": 0, "pp_size": config["stages"], "pp_async_batch_depth": 0}
    get_parallel().override_permanently(tp_rank=0, attn_tp_rank=0, **stages)
    get_context().override_server_args(**_known_arguments(config)).install()
    server = WatchedScheduler()
    for name in _SWITCHED_OFF:
        setattr(server, name, False)
    for name in _ABSENT:
        setattr(server, name, None)
    _add_memory(server, config)
    _add_settings(server, config)
    _add_neighbours(server)
    _add_parts(server, config)
    return server


def _known_arguments(config: Config) -> Config:
    """The server arguments without those that this version lacks.

    Raises:
        ValueError: one of these asks for what the version does not do.
    """
    arguments, usual = server_arguments(config), server_arguments(DEFAULTS)
    lacking = arguments.keys() - set(ServerArgs.__struct_fields__)
    for name in sorted(lacking):
        if arguments[name] != usual.get(name):
            raise ValueError(f"this SGLang has no {name}")
    return {name: value for name, value in arguments.items() if name not in lacking}


def _add_memory(server: Any, config: Config) -> None:
    rows, allocator, tree, device = build_memory(config)
    server.req_to_token_pool, server.token_to_kv_pool_allocator = rows, allocator
    server.tree_cache, server.virtual_device = tree, device
    server.device = "cpu"
    server.page_size = config["page_size"]
    server.max_total_num_tokens = pool_tokens(config)
    server.max_req_len = min(config["context_len"], server.max_total_num_tokens) - 1
    server.max_req_input_len = server.max_req_len - 5
    server.kv_shard_widening = 1
    server.sliding_window_size = config["sliding_window"]
    server.is_hybrid_swa = bool(config["sliding_window"])
    server.is_hybrid_ssm = bool(config["max_mamba_cache_size"])
    server.enable_hierarchical_cache = bool(config["hicache_write_policy"])
    server.enable_hicache_storage = bool(config["hicache_storage_backend"])
    is_decode = config["disaggregation_mode"] == "decode"
    server.enable_decode_hicache = is_decode and server.enable_hierarchical_cache


def _add_settings(server: Any, config: Config) -> None:
    server.max_running_requests = config["max_running_requests"]
    server.max_prefill_tokens = config["max_prefill_tokens"]
    server.max_queued_requests = config["max_queued_requests"]
    server.model_config = SimpleNamespace(
        vocab_size=1 << 31, is_encoder_decoder=False, is_multimodal=False,
        context_len=config["context_len"], hf_config=SimpleNamespace(architectures=None),
        hf_text_config=SimpleNamespace(), is_generation=True, num_key_value_heads=1,
        self_opened_think_start_ids=None, think_end_ids=None,
    )  # fmt: skip
    server.disaggregation_mode = DisaggregationMode.NULL
    drafts = config["speculation"]
    server.spec_algorithm = SpeculativeAlgorithm.from_string(
        drafts["algorithm"] if drafts else None
    )
    server.is_generation = True
    server.enable_overlap = config["enable_overlap"]
    server.schedule_policy = config["policy"]
    server.enable_priority_scheduling = config["enable_priority_scheduling"]
    server.schedule_low_priority_values_first = config["schedule_low_priority_values_first"]
    server.priority_scheduling_preemption_threshold = config["priority_preemption_threshold"]


def _add_neighbours(server: Any) -> None:
    """What surrounds a scheduler and decides nothing."""
    server.waiting_queue = []
    server.running_batch = ScheduleBatch(reqs=[], batch_is_full=False)
    server.result_queue = deque()
    server.forward_ct = server.processed_tokens_counter = 0
    server.tp_worker = server.model_worker = SimpleNamespace(
        model_runner=SimpleNamespace(attn_backend=None, prefill_aware_swa=False),
        on_verify_complete_cpu=lambda *_, **__: None,
    )
    server.future_map = Quiet()
    server.grammar_manager = Quiet(has_waiting_grammars=lambda: False, grammar_queue=[])
    server.dllm_manager = SimpleNamespace(any_staging_reqs=lambda: False)
    server.dp_attn_adapter = SimpleNamespace(
        maybe_prepare_mlp_sync_batch=_same,
        maybe_convert_decode_to_extend=_same,
    )
    server.ngram_embedding_manager = SimpleNamespace(prepare_for_forward=_same)
    server.load_inquirer = SimpleNamespace(_get_num_pending_tokens=lambda **_: 0, get_loads=None)
    server.beam_coordinator = SimpleNamespace(
        pending_member_rows=lambda _: 0,
        commit_decode=lambda _: set(),
        retire_group=lambda _: None,
    )
    server.load_publisher, server.output_streamer = Quiet(), Quiet()
    # Up to 0.5.22 it is here that it says which requests are aborted.
    server.ipc_channels = SimpleNamespace(
        send_to_tokenizer=SimpleNamespace(send_output=server.send_abort_output)
    )
    server.metrics_reporter = Quiet(
        num_generated_tokens=0, forward_ct_decode=0, num_retracted_reqs=0, enable_metrics=False
    )


def _same(batch: Any, *_: Any, **__: Any) -> Any:
    return batch


def _add_parts(server: Any, config: Config) -> None:
    """SGLang's own parts: chunked prefill, policy, ratio of new tokens, delayers, results."""
    if config["prefill_delayer"] and config["ranks"] == 1:
        _make_one_rank()
    resolve, scheduler.get_resolved_model_impl = (
        scheduler.get_resolved_model_impl,
        lambda _: ModelImpl.SGLANG,
    )
    try:
        server.init_chunked_prefill()
    finally:
        scheduler.get_resolved_model_impl = resolve
    server.init_schedule_policy()
    fewest = resolve_min_free_slots(
        config["min_free_slots_delay"] or None, config["max_running_requests"]
    )
    if fewest is not None:
        server.min_free_slots_delayer = MinFreeSlotsDelayer(fewest)
    server.batch_result_processor = SchedulerBatchResultProcessor(
        is_generation=True,
        disaggregation_mode=server.disaggregation_mode,
        enable_overlap=server.enable_overlap,
        enable_overlap_mlx=False,
        model_config=server.model_config,
        token_to_kv_pool_allocator=server.token_to_kv_pool_allocator,
        tree_cache=server.tree_cache,
        hisparse_coordinator=None,
        req_to_token_pool=server.req_to_token_pool,
        decode_offload_manager=None,
        metrics_collector=None,
        metrics_reporter=server.metrics_reporter,
        draft_worker=None,
        model_worker=server.model_worker,
        logprob_result_processor=Quiet(),
        output_streamer=server.output_streamer,
        beam_coordinator=server.beam_coordinator,
        abort_request=lambda *_, **__: None,
    )


def _make_one_rank() -> None:
    """The delayer of prefills asks all ranks, of which there is one."""
    parallel = SimpleNamespace(
        num_dp_ranks=1,
        attn_dp_enabled=False,
        tp_group=SimpleNamespace(cpu_group=None, device_group=None, device="cpu"),
        attn_cp_size=1,
        attn_tp_size=1,
    )
    prefill_delayer.get_parallel = lambda: parallel
    prefill_delayer.all_gather_single = lambda out, mine, **_: out.copy_(mine)


def begin_forward(server: Any, batch: Any) -> None:
    """What `Scheduler.run_batch` does to the scheduler's state."""
    server.forward_ct += 1
    batch.forward_iter = server.forward_ct
    if batch.extend_num_tokens:
        server.processed_tokens_counter += batch.extend_num_tokens
    batch.prefill_input_ids_cpu = batch.mix_running_indices = batch.input_ids = None


def decides_again(server: Any, *, defers: bool) -> bool:
    """Whether a server without a batch makes the next pass at once.

    `defers`: the last pass looked at no waiting request, so that the running ones decode first.
    """
    remaining = bool(server._prefill_decode_interval_remaining)
    delayer = server.prefill_delayer
    delays = delayer is not None and delayer._curr_state is not None
    return defers or remaining or delays


def new_request(
    rid: str,
    prompt: list[int],
    *,
    max_tokens: int,
    ignore_eos: bool,
    priority: int | None = None,
    routing_key: str | None = None,
    **_: Any,
) -> Any:
    """A request as SGLang's tokenizer hands it over."""
    sampling = SamplingParams(
        max_new_tokens=max_tokens, stop_token_ids=[_END_TOKEN], ignore_eos=ignore_eos
    )
    sampling.normalize(None)
    request = Req(
        rid, "", array("q", prompt), sampling, priority=priority, routing_key=routing_key,
        vocab_size=1 << 31, eos_token_ids=None,
    )  # fmt: skip
    request.tokenizer = None
    request.logprob_start_len = -1
    return request
