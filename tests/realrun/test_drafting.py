"""N-gram speculation on real runs: transformers' own tokens, several a step, and exact replays."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from realrun.tokens.drafting import ngram_drafts
from sim.core.batch import OutputScript
from sim.engine.acceptance import AcceptanceByPosition, Speculation
from sim.engine.page_pool import PageCounts
from sim.engine.replay import RankReplay, of_one_server, replay
from sim.families import build_engine, build_executor
from sim.runlog.run_log_file import RecordedRun, load_run_log
from sim.scenario.acceptance_section import recorded_acceptance
from sim.vllm.config import VllmConfig
from sim.workload.workload import listed
from tests.support.workloads import scripted

DRAFTS = Speculation("ngram", 3, AcceptanceByPosition([0.0] * 3), lookup_min=1, lookup_max=3)
ROOMY = VllmConfig(
    block_size=16,
    num_gpu_blocks=257,
    max_model_len=512,
    max_num_batched_tokens=48,
    max_num_seqs=8,
    async_scheduling=False,
    speculation=DRAFTS,
)
SETTINGS = {
    "roomy": ROOMY,
    "0.19.0": replace(ROOMY, version="0.19.0", block_size=4, num_gpu_blocks=1025),
    "tight": replace(ROOMY, num_gpu_blocks=10, max_model_len=128),
    "tight, 0.19.0": replace(ROOMY, version="0.19.0", num_gpu_blocks=10, max_model_len=128),
    "small budget": replace(ROOMY, max_num_batched_tokens=9),
    "no cache": replace(ROOMY, enable_prefix_caching=False, num_gpu_blocks=12, max_model_len=128),
}
# Prompts repeat themselves, share a beginning, or are equal. Outputs soon repeat themselves, too.
WORKLOAD = listed(
    [
        scripted("a", (7, 12), (7, 12), (7, 5), output=50, ignore_eos=True),
        scripted("b", (7, 12), (7, 12), (7, 5), output=40, ignore_eos=True),
        scripted("c", (3, 6), (3, 6), output=60, ignore_eos=True),
        scripted("d", (4, 16), (5, 2), output=60, ignore_eos=True),
        scripted("e", (4, 16), (6, 2), output=60, ignore_eos=True),
        scripted("f", (8, 21), output=1),
    ]
)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=24),
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(1, 5),
)
def test_lookup_takes_the_first_place_of_the_longest_ngram(tokens, shortest, more, most):
    def found():
        for length in range(shortest + more, shortest - 1, -1):
            for begin in range(len(tokens) - length):
                if tokens[begin : begin + length] == tokens[len(tokens) - length :]:
                    return tokens[begin + length :][:most]
        return []

    drafts = ngram_drafts(np.array(tokens), shortest, shortest + more, most)
    assert drafts.tolist() == found()


def replayed(run, config, workload):
    """The first decision that a simulated engine makes otherwise; it accepts what the run did."""
    rows = enumerate(run.requests)
    accepted = recorded_acceptance(rows, run.path, looks_up=True)
    config = replace(config, speculation=replace(DRAFTS, acceptance=accepted))
    executor, arrivals = build_executor(config), []
    requests = {request.spec.rid: request for request in workload.arrivals()}
    for line in run.requests:
        request = requests[line["rid"]].sent_at(line["arrival_ns"])
        script = OutputScript(line["output_tokens"], request.script.seed)
        executor.add(request.spec.rid, script, ignore_eos=request.spec.ignore_eos)
        arrivals.append(request.spec)
    pool = PageCounts(config.pool_tokens // config.page_size, config.page_size)
    engine = build_engine(config, pool=pool, executor=executor)
    server = RankReplay(engine, executor, arrivals)
    return replay([server], of_one_server(run.steps), overlaps=False)


@pytest.mark.parametrize(
    ("settings", "architecture"),
    list(zip(SETTINGS, ("llama", "qwen2", "gpt2", "llama", "qwen3", "gpt2"), strict=True)),
)
def test_greedy_tokens_are_those_of_transformers(
    paged_models, serve_greedy, architecture, settings
):
    """Batched, chunked, put back: the same tokens as `generate`, several a step, and a replay."""
    model, config = paged_models[architecture], SETTINGS[settings]
    meta = {"source": "realrun", "fingerprint": {}, "num_speculative_tokens": 3}
    run = RecordedRun.of_lines(meta, serve_greedy(model, config, WORKLOAD))
    for request, line in zip(WORKLOAD.arrivals(), run.requests, strict=True):
        prompt = torch.from_numpy(request.spec.prompt.token_ids() % 97)[None]
        with torch.inference_mode():
            expected = model.model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=request.spec.max_new_tokens,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
        assert line["output_ids"] == expected[0, prompt.shape[1] :].tolist()
        assert len(line["token_ns"]) == line["output_tokens"] == len(line["output_ids"])
        steps = zip(line.get("accepted_by_step", []), line.get("proposed_by_step", []), strict=True)
        assert all(accepted <= proposed <= 3 for accepted, proposed in steps)
    requests = load_run_log(run).requests
    assert 0 < requests.accepted_tokens.sum() < requests.drafted_tokens.sum()
    counts = {count for line in run.requests for count in line.get("proposed_by_step", [])}
    assert {0, 3} <= counts
    assert (requests.preemptions.sum() > 0) == (config.num_gpu_blocks < 20)
    assert str(replayed(run, config, WORKLOAD)) == "None"
