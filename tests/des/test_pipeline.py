"""A server whose device is a pipeline: when each stage works, and what is in flight."""

from dataclasses import replace

import pytest

from sim.latency.wrappers import StagedLatency
from sim.sglang.config import SchedulerConfig
from sim.vllm.config import VllmConfig
from sim.workload.workload import listed
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

MS = 1_000_000


def config(family, stages=2, **settings):
    if family == "vllm":
        return VllmConfig(
            async_scheduling=False, micro_batches=stages, num_gpu_blocks=2_000, **settings
        )
    return SchedulerConfig(
        disable_overlap_schedule=True, disable_radix_cache=True, micro_batches=stages, **settings
    )


def run(config, *requests, stages=2, **seconds):
    """20 ms a step and 2 ms for each prefill token, evenly over the stages."""
    none = {"per_prefill_token_s": 0.002, "per_decode_request_s": 0, "per_context_token_s": 0}
    model = linear_latency(**{"step_s": 0.02, **none, **seconds})
    latency = model
    if config.micro_batches > 1:
        latency = StagedLatency(model, model, [1] * stages)
    return serve(listed(list(requests)), config, [latency])


def request(name, prompt=10, output=1, at_ms=0):
    segment = (sum(name.encode()), prompt)
    return scripted(name, segment, output=output, arrival_ns=int(at_ms * MS), ignore_eos=True)


def lines(served):
    return [
        (line["mode"], line["n_decode"], line["t_start_ns"] // MS, line["t_end_ns"] // MS)
        for line in served.steps
    ]


@pytest.mark.parametrize("family", ["vllm", "sglang"])
def test_pipeline_one_request_takes_the_sum_of_the_stages(family):
    """As long as without a pipeline: nothing else can run while its token is in flight."""
    served = run(config(family), request("a", output=3))
    assert lines(served) == [("extend", 0, 0, 40), ("decode", 1, 40, 60), ("decode", 1, 60, 80)]
    alone = run(config(family, stages=1), request("a", output=3))
    assert alone.request("a")["finish_ns"] == served.request("a")["finish_ns"] == 80 * MS


def one_prompt_a_step(family, stages=2):
    if family == "vllm":
        return config(family, stages, max_num_batched_tokens=10, max_num_seqs=10, max_model_len=90)
    return config(family, stages, chunked_prefill_size=10, max_running_requests=10 * stages)


@pytest.mark.parametrize("family", ["vllm", "sglang"])
def test_pipeline_of_two_stages_by_hand(family):
    """Prefill steps have 20 ms a stage, decode steps have 10. Each step has one request.

    stage 0   | a 0-20 | b 20-40 | a 40-50 |         | b 60-70 | a 70-80 | b 80-90 |
    stage 1            | a 20-40 | b 40-60 | a 60-70 | b 70-80 | a 80-90 | b 90-100 |
    """
    served = run(one_prompt_a_step(family), request("a", output=3), request("b", output=3))
    assert lines(served) == [
        ("extend", 0, 0, 40), ("extend", 0, 20, 60),
        ("decode", 1, 40, 70), ("decode", 1, 60, 80),
        ("decode", 1, 70, 90), ("decode", 1, 80, 100),
    ]  # fmt: skip
    assert served.log.requests.first_token_ns.tolist() == [40 * MS, 60 * MS]
    assert served.log.token_gaps.gap_ns.tolist() == [30 * MS, 20 * MS, 20 * MS, 20 * MS]


@pytest.mark.parametrize("family", ["vllm", "sglang"])
def test_pipeline_of_two_stages_and_two_ranks_by_hand(family):
    """A stage computes a step for as long as the slowest rank; `b` alone has 15 ms in each.

    stage 0   | a and b 0-20 | c 20-40       | a and b 40-50 |
    stage 1                  | a and b 20-40 | c 40-60       | a and b 60-70 |
    """
    none = {"per_prefill_token_s": 0.002, "per_decode_request_s": 0, "per_context_token_s": 0}
    model = linear_latency(step_s=0.02, **none)
    ranks = tuple(StagedLatency(model, model, [1, 1]) for _ in range(2))
    requests = [request("a", output=2), request("b", prompt=5, output=2), request("c")]
    served = serve(listed(requests), one_prompt_a_step(family), [ranks])
    assert served.log.requests.replica.tolist() == [0, 1, 0]
    assert [line["step"] for line in served.steps] == [0, 0, 1, 2, 2]
    assert lines(served) == [
        ("extend", 0, 0, 40), ("extend", 0, 0, 40),
        ("extend", 0, 20, 60),
        ("decode", 1, 40, 70), ("decode", 1, 40, 70),
    ]  # fmt: skip


@pytest.mark.parametrize("family", ["vllm", "sglang"])
@pytest.mark.parametrize("stages", [2, 4])
def test_pipeline_saturated_computes_as_many_times_as_much(family, stages):
    """As without a pipeline in the same total time, but for filling and emptying it."""
    prompts = [request(f"r{i}") for i in range(40)]
    ends_ns = []
    for micro_batches in (1, stages):
        served = run(one_prompt_a_step(family, micro_batches), *prompts, stages=stages)
        ends_ns.append(max(served.log.requests.finish_ns))
    assert ends_ns == [40 * 40 * MS, 40 * 40 * MS // stages + (stages - 1) * 40 * MS // stages]


@pytest.mark.parametrize("family", ["vllm", "sglang"])
def test_pipeline_chunks_of_one_prompt_follow_each_other_through_the_stages(family):
    """The second chunk needs only the first one's KV, not its result."""
    served = run(one_prompt_a_step(family), request("a", prompt=30, output=2))
    assert lines(served) == [
        ("extend", 0, 0, 40), ("extend", 0, 20, 60), ("extend", 0, 40, 80), ("decode", 1, 80, 100),
    ]  # fmt: skip


@pytest.mark.parametrize("family", ["vllm", "sglang"])
def test_pipeline_that_waits_for_a_result_sees_an_arrival_after_it(family):
    """Although the first stage has been free since 20 ms."""
    served = run(config(family), request("a", output=2), request("b", output=2, at_ms=25))
    assert served.request("b")["scheduled_ns"] == 40 * MS


def test_vllm_pipeline_under_async_scheduling_decides_before_the_token_is_known():
    """Step 0 has the prompt; decision 1 finds nothing to do; step 2 is decided at once, too."""
    waits = replace(config("vllm"), async_scheduling=True)
    served = run(waits, request("a", output=3), request("b", output=2, at_ms=5))
    decided = [line["t_decided_ns"] // MS for line in served.steps]
    assert decided[:2] == [0, 0]
    assert lines(served)[:2] == [("extend", 0, 0, 40), ("decode", 1, 40, 60)]
    # All three places were taken until the first result.
    assert served.request("b")["scheduled_ns"] == 40 * MS


def test_sglang_gives_each_micro_batch_its_share_of_the_requests():
    """Two may run in each of two; vLLM puts all four into one step."""
    four = [request(name, output=3) for name in "abcd"]
    served = run(config("sglang", max_running_requests=4), *four)
    assert [line["n_decode"] for line in served.steps] == [0, 0, 2, 2, 2, 2]
    served = run(config("vllm", max_num_seqs=4), *four)
    assert [line["n_decode"] for line in served.steps] == [0, 4, 4]


def test_vllm_preempts_a_row_in_flight_and_it_keeps_its_token():
    """A row needs a block; the request admitted last, whose step is in flight, loses its own."""
    limits = {"max_num_batched_tokens": 8, "max_num_seqs": 8, "max_model_len": 24}
    small = VllmConfig(
        async_scheduling=False, micro_batches=3, block_size=4, num_gpu_blocks=9, **limits
    )
    served = run(small, *[request(name, prompt=8, output=12) for name in "abc"], stages=3)
    assert sum(served.log.requests.preemptions) > 0
    assert served.log.requests.output_tokens.tolist() == [12, 12, 12]
