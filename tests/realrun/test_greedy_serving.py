"""Requests get the same greedy tokens alone and together, in chunks, shared, and put back."""

from dataclasses import replace

import pytest

from realrun.clock import WallClock
from realrun.server import assemble, serve_workload
from sim.sglang.config import SchedulerConfig
from sim.vllm.config import VllmConfig
from sim.vllm.offload.settings import OffloadSettings
from sim.workload.workload import Turn, listed
from tests.support.workloads import scripted

ROOMY = SchedulerConfig(
    page_size=16,
    max_total_tokens=4096,
    context_length=512,
    chunked_prefill_size=32,
    max_running_requests=8,
)
ROOMY_VLLM = VllmConfig(
    block_size=16,
    num_gpu_blocks=257,
    max_model_len=512,
    max_num_batched_tokens=32,
    max_num_seqs=8,
)
SETTINGS = {
    "pages of 16": ROOMY,
    "pages of 1": replace(ROOMY, page_size=1),
    "mixed batches": replace(ROOMY, enable_mixed_chunk=True),
    "no overlap": replace(ROOMY, disable_overlap_schedule=True),
    "no cache": replace(ROOMY, disable_radix_cache=True, page_size=1),
    "vllm": ROOMY_VLLM,
    "vllm, threshold": replace(ROOMY_VLLM, long_prefill_token_threshold=7),
    "vllm, sync": replace(ROOMY_VLLM, async_scheduling=False, block_size=1, num_gpu_blocks=4097),
}
TIGHT = replace(ROOMY, max_total_tokens=224, schedule_conservativeness=0.0, clip_max_new_tokens=8)
TIGHT_VLLM = replace(ROOMY_VLLM, num_gpu_blocks=10, max_model_len=128)
TIGHT_SETTINGS = {
    "pages of 16": TIGHT,
    "pages of 1": replace(TIGHT, page_size=1),
    "mixed batches": replace(TIGHT, enable_mixed_chunk=True),
    "no overlap": replace(TIGHT, disable_overlap_schedule=True, page_size=1),
    "vllm": TIGHT_VLLM,
    "vllm, blocks of 1": replace(TIGHT_VLLM, block_size=1, num_gpu_blocks=145),
    "vllm, sync": replace(TIGHT_VLLM, async_scheduling=False),
    "vllm, no cache": replace(TIGHT_VLLM, enable_prefix_caching=False),
}
# Nothing is found in GPU memory: what is found comes from CPU memory, in chunks of two blocks.
HOST = replace(
    ROOMY_VLLM,
    async_scheduling=False,
    enable_prefix_caching=False,
    offload=OffloadSettings(num_chunks=40, blocks_per_chunk=2, offload_prompt_only=False),
)
# Prompts share 40 tokens, two are equal, and some are longer than a chunk.
WORKLOAD = listed(
    [
        scripted("a", (7, 40), (1, 30), output=24),
        scripted("b", (7, 40), (2, 5), output=40),
        scripted("c", (3, 9), output=30),
        scripted("d", (7, 40), (2, 5), output=16),
        scripted("e", (4, 75), output=12),
        scripted("f", (7, 40), (1, 30), (5, 3), output=20),
        scripted("g", (6, 17), output=1),
    ]
)
# Short prompts and long outputs: the pool fills up while they decode.
GROWING = listed([scripted(f"r{i}", (7, 16), (i, 5), output=60) for i in range(6)])


@pytest.fixture
def served_outputs(serve_greedy):
    """Greedy outputs by rid, how often requests were put back, and cached prompt tokens."""

    def run(model, config, workload):
        lines = [line for line in serve_greedy(model, config, workload) if line["kind"] == "req"]
        assert [line["status"] for line in lines] == ["finished"] * workload.num_requests
        assert all(len(line["output_ids"]) == len(line["token_ns"]) for line in lines)
        num_put_back = sum(line["retractions"] + line["preemptions"] for line in lines)
        num_cached = sum(line["cached_at_admit"] for line in lines)
        return {line["rid"]: line["output_ids"] for line in lines}, num_put_back, num_cached

    return run


def check_outputs(outputs, workload, architecture, plain_logits, end_ids):
    """Each token is the most likely one by plain transformers, after the tokens before it."""
    for request in workload.arrivals():
        output = outputs[request.spec.rid]
        prompt = (request.spec.prompt.token_ids() % 97).tolist()
        logits = plain_logits(architecture, [*prompt, *output])[len(prompt) - 1 : -1]
        best = logits.max(dim=-1).values
        chosen = logits[range(len(output)), output]
        assert (best - chosen).max() < 1e-4, request.spec.rid
        ended = [token for token in output if token in end_ids]
        assert output[-1] in end_ids or len(output) == request.spec.max_new_tokens
        assert ended == [] or (len(ended) == 1 and output[-1] in end_ids)


def with_each_architecture(names):
    """Each setting with one of the architectures, in turn; with all of them in long runs."""
    architectures = ("llama", "qwen2", "qwen3", "gpt2")
    params = [
        pytest.param(architecture, name, marks=() if place % 4 == turn else pytest.mark.long)
        for turn, architecture in enumerate(architectures)
        for place, name in enumerate(names)
    ]
    return pytest.mark.parametrize(("architecture", "settings"), params)


@with_each_architecture(SETTINGS)
def test_greedy_served_together_equals_alone(
    paged_models, served_outputs, plain_logits, architecture, settings
):
    """Chunked, mixed and shared prompts: every token is transformers' own choice."""
    model = paged_models[architecture]
    outputs, _, num_cached = served_outputs(model, SETTINGS[settings], WORKLOAD)
    # Below the threshold they are computed side by side, and none finds another's prefix.
    assert (num_cached > 0) == (settings not in {"no cache", "vllm, threshold"})
    check_outputs(outputs, WORKLOAD, architecture, plain_logits, {model.model.config.eos_token_id})


@with_each_architecture(TIGHT_SETTINGS)
def test_greedy_put_back_goes_on_where_it_was(
    paged_models, served_outputs, plain_logits, architecture, settings
):
    """Retracted in the middle of their outputs, requests end up with the same tokens."""
    model = paged_models[architecture]
    outputs, num_put_back, _ = served_outputs(model, TIGHT_SETTINGS[settings], GROWING)
    assert num_put_back > 0
    check_outputs(outputs, GROWING, architecture, plain_logits, {model.model.config.eos_token_id})


def test_kv_from_cpu_memory_is_what_was_copied_there(serve_greedy, paged_models, plain_logits):
    """Tokens behind a loaded prefix are transformers' own choice."""
    workload = listed(
        [
            scripted(f"{name}{turn}", (7, 40), (1 + place, 30), (20 + turn, 3), output=8)
            for turn in range(4)
            for place, name in enumerate("abcd")
        ]
    )
    lines = serve_greedy(paged_models["llama"], HOST, workload)
    loaded = [row for line in lines if line["kind"] == "step" for row in line["loaded"]]
    assert len(loaded) >= 4
    outputs = {line["rid"]: line["output_ids"] for line in lines if line["kind"] == "req"}
    end_ids = {paged_models["llama"].model.config.eos_token_id}
    check_outputs(outputs, workload, "llama", plain_logits, end_ids)


def test_a_chunk_may_begin_inside_what_the_gpu_has(serve_greedy, paged_models, plain_logits):
    """The second prompt takes all but the first three blocks; a chunk has two."""
    config = replace(HOST, enable_prefix_caching=True, num_gpu_blocks=12, max_model_len=128)
    first, other = scripted("a", (7, 112), output=1), scripted("b", (9, 120), output=1)
    again = scripted("c", (7, 112), (5, 3), output=8)
    workload = listed(clients=[[Turn(0, request) for request in (first, other, again)]])
    lines = serve_greedy(paged_models["llama"], config, workload)
    loaded = [line["loaded"] for line in lines if line["kind"] == "step" and line["loaded"]]
    assert loaded == [[["c", 48]]]
    outputs = {line["rid"]: line["output_ids"] for line in lines if line["kind"] == "req"}
    end_ids = {paged_models["llama"].model.config.eos_token_id}
    check_outputs(outputs, listed([first, other, again]), "llama", plain_logits, end_ids)


def test_the_clock_starts_when_garbage_is_collected(serve_greedy, paged_models, monkeypatch):
    """A collection takes a large part of a second, in which requests would arrive."""
    done = []

    class Clock(WallClock):
        def __init__(self):
            done.append("clock")
            super().__init__()

    monkeypatch.setattr(assemble.gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(serve_workload, "WallClock", Clock)
    serve_greedy(paged_models["llama"], ROOMY, listed([scripted("a", (7, 5), output=1)]))
    assert done == ["collect", "clock"]
