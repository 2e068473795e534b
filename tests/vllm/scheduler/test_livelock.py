"""Cases in which vLLM's rules never end, and ours do."""

from sim.vllm.config import VllmConfig
from sim.workload.workload import listed
from tests.support.serve import serve
from tests.support.workloads import scripted


def test_equals_that_preempt_one_another_all_end():
    """Of equals in priority and arrival vLLM's `max` takes the first: the one furthest along.

    Nobody ever gets a token. A real clock tells any two arrivals apart; here, after a while, their
    order of entering does.
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
    requests = [scripted(f"r{i}", (i, 300), output=20, ignore_eos=True) for i in range(12)]
    log = serve(listed(requests), config, check=False).log
    assert log.requests.status == ["finished"] * 12
    assert log.requests.output_tokens.tolist() == [20] * 12
    assert max(log.requests.preemptions) >= 100
