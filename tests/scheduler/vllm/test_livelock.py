"""Where vLLM's own rules never end, a run does not hang: it says so."""

import pytest

from sim.core.errors import InputError
from sim.scheduler.vllm.config import VllmConfig
from sim.testing.serve import serve
from sim.testing.workloads import ListWorkload, scripted


def test_requests_that_preempt_one_another_for_ever_are_an_error():
    """Equals in priority and arrival: the victim is the one furthest along, again and again.

    vLLM 0.19.0's own scheduler goes round in the same circle (`max` takes the first of equals).
    """
    config = VllmConfig(
        max_num_batched_tokens=1024,
        max_num_seqs=16,
        max_model_len=400,
        num_gpu_blocks=26,
        long_prefill_token_threshold=24,
        scheduling_policy="priority",
        scheduler_reserve_full_isl=False,
        enable_prefix_caching=False,
    )
    requests = [scripted(f"r{i}", (i, 300), output=20) for i in range(12)]
    with pytest.raises(InputError, match=r"never end this: r.* preempt one another"):
        serve(ListWorkload(requests), config, check=False)
