"""The schedulers of both families keep the contract of their seam."""

import pytest

from sim.sglang.config import SchedulerConfig
from sim.testing.contracts import SchedulerContract
from sim.vllm.config import VllmConfig

OF_SGLANG = {
    "whole prompts": {"chunked_prefill_size": -1},
    "chunks": {},
    "mixed": {"enable_mixed_chunk": True},
    "no overlap": {"disable_overlap_schedule": True},
    "no cache": {"disable_radix_cache": True},
    "lpm": {"schedule_policy": "lpm"},
    "turns": {"decode_max_requests": 2, "disable_overlap_schedule": True},
}
OF_VLLM = {
    "chunks": {},
    "whole prompts": {"enable_chunked_prefill": False, "max_num_batched_tokens": 10_000},
    "threshold": {"long_prefill_token_threshold": 5},
    "sync": {"async_scheduling": False},
    "no cache": {"enable_prefix_caching": False},
    "priority": {"scheduling_policy": "priority"},
    "no reservation": {"scheduler_reserve_full_isl": False},
}


class TestSglang(SchedulerContract):
    """Prefill first, one chunked prompt at a time, retraction."""

    @pytest.fixture(params=OF_SGLANG)
    def make_config(self, request):
        def make(pool_tokens, page_size, most_rows):
            usual = {"chunked_prefill_size": 16, "schedule_conservativeness": 0.3}
            return SchedulerConfig(
                max_total_tokens=pool_tokens,
                page_size=page_size,
                max_running_requests=most_rows,
                **usual | OF_SGLANG[request.param],
            )

        return make


class TestVllm(SchedulerContract):
    """One budget, any number of prompts in progress, preemption."""

    @pytest.fixture(params=OF_VLLM)
    def make_config(self, request):
        def make(pool_tokens, page_size, most_rows):
            usual = {"max_num_batched_tokens": 16}
            return VllmConfig(
                num_gpu_blocks=pool_tokens // page_size + 1,
                max_model_len=pool_tokens,
                block_size=page_size,
                max_num_seqs=most_rows,
                **usual | OF_VLLM[request.param],
            )

        return make
