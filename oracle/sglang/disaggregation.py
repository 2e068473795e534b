"""Gives a server SGLang's queues of a prefill server or a decode server."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from sglang.srt.disaggregation import decode, prefill
from sglang.srt.disaggregation.utils import DisaggregationMode, KVClassType
from sglang.srt.runtime_context import get_parallel
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from oracle.sglang.partner import Partner, Receiver, Sender
from sim.installed.inside.sglang.quiet import Quiet
from sim.installed.inside.sglang.settings import Config


class ForwardEnd:
    """Stands in for `torch.cuda.Event`: the end of the forward that runs when it is recorded."""

    forward_free_s = 0.0

    def __init__(self, **_: Any) -> None:
        self.time_s = 0.0

    def record(self, *_: Any) -> None:
        self.time_s = self.forward_free_s


def add_disaggregation(
    server: Any, config: Config, clock: Any, stream_output: Callable[..., None]
) -> Partner:
    """Make the role's queues, and the other server, which acts by the case's script."""
    partner = Partner(clock)
    ends = {KVClassType.SENDER: Sender, KVClassType.RECEIVER: Receiver}
    for module, queue in (
        (decode, decode.DecodePreallocQueue),
        (prefill, prefill.PrefillBootstrapQueue),
    ):
        module.get_kv_class = lambda _, kind: ends[kind]
        queue._init_kv_manager = lambda _: partner
    decode.CLIP_MAX_NEW_TOKEN = config["clip_max_new_tokens"]
    _use_one_process(server)
    torch.cuda.Event = ForwardEnd
    server.random_seed = 0
    server.server_args = SimpleNamespace(sampling_mask_max_tokens=0)
    server.schedule_stream = server.forward_stream = Quiet()
    server.tp_worker.is_hybrid_swa = server.is_hybrid_swa
    runner = server.tp_worker.model_runner
    runner.effective_logical_max_total_num_tokens = server.max_total_num_tokens
    if server.is_hybrid_swa:
        runner.swa_max_total_num_tokens = server.token_to_kv_pool_allocator.size_swa
    _send_no_drafts()
    server.init_disaggregation()
    server.output_streamer = SimpleNamespace(stream_output=stream_output)
    server.batch_result_processor = replace(
        server.batch_result_processor,
        disaggregation_mode=DisaggregationMode(config["disaggregation_mode"]),
        output_streamer=server.output_streamer,
    )
    partner.metadata = server.disagg_metadata_buffers
    return partner


def _send_no_drafts() -> None:
    """What a drafter starts from is not transferred: draws stand in for drafters."""
    SpeculativeAlgorithm.carries_draft_hidden_states = lambda _: False
    SpeculativeAlgorithm.build_disagg_draft_input = lambda *_: None


def _use_one_process(server: Any) -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    group = SimpleNamespace(cpu_group=dist.group.WORLD)
    get_parallel().override_permanently(pp_rank=0, attn_tp_group=group, attn_cp_group=group)
    server.attn_tp_cpu_group = server.attn_cp_cpu_group = dist.group.WORLD
