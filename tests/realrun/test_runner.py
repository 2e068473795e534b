"""Which steps use recorded passes, and which of their logits the runner returns."""

import numpy as np
import pytest
import torch

from realrun.runner import model_runner
from realrun.runner.model_runner import ModelRunner


class FakeGraphs:
    """Recorded passes of 4 and 8 rows that return logits naming row and token."""

    def __init__(self):
        self.prepared = []

    def padded_rows(self, num_rows):
        return next((size for size in (4, 8) if num_rows <= size), 0)

    def prepare(self, plan):
        self.prepared.append(plan)

    def replay(self, num_rows, token_ids):
        logits = torch.zeros(num_rows, 97)
        logits[: len(token_ids), 0] = token_ids.float()
        return logits


@pytest.fixture
def server(paged_models, paged_requests):
    """Requests on a runner with recorded passes."""
    server = paged_requests(paged_models["llama"], 16)
    runner = server.runner
    server.runner = ModelRunner(runner.model, runner.kv, runner.attention, graphs=FakeGraphs())
    return server


def test_decodes_go_through_the_next_larger_recorded_pass(server):
    """Three rows are padded to four; logits come back for the three."""
    for rid in "abc":
        server.add(rid, [int(rid, 16)] * 30)
    prefill = server.plan({"a": 29, "b": 29, "c": 29})
    assert server.runner.padded_rows(prefill) == 0
    server.step({"a": 29, "b": 29, "c": 29})
    assert server.runner.graphs.prepared == []
    logits = server.step({"a": 1, "b": 1, "c": 1})
    assert {rid: int(row[0]) for rid, row in logits.items()} == {"a": 10, "b": 11, "c": 12}
    (plan,) = server.runner.graphs.prepared
    assert plan.num_rows == 4
    assert plan.kv_indices[-1] == server.kv.scratch_page
    assert plan.kv_lens.tolist() == [30, 30, 30, 1]


def test_decodes_beyond_the_largest_recorded_pass_run_eagerly(server, plain_logits):
    """Nine rows, and a pass of eight at most."""
    rids = [f"r{number}" for number in range(9)]
    tokens = np.random.default_rng(3).integers(0, 97, 12).tolist()
    for rid in rids:
        server.add(rid, tokens)
    server.step(dict.fromkeys(rids, 11))
    assert server.runner.padded_rows(server.plan(dict.fromkeys(rids, 1))) == 0
    logits = server.step(dict.fromkeys(rids, 1))
    assert server.runner.graphs.prepared == []
    for row in logits.values():
        torch.testing.assert_close(row, plain_logits("llama", tokens)[-1])


def test_drafts_of_long_rows_run_eagerly(server, monkeypatch):
    """A recorded pass would read the K and V of a row once for each draft."""
    for rid in "ab":
        server.add(rid, list(range(40)))
    server.step({"a": 30, "b": 20})
    plan = server.plan({"a": 3, "b": 2}, drafts=True)
    assert plan.num_tokens_read_again == 2 * 33 + 22
    monkeypatch.setattr(model_runner, "_MAX_TOKENS_READ_AGAIN", 88)
    assert server.runner.padded_rows(plan) == 8
    monkeypatch.setattr(model_runner, "_MAX_TOKENS_READ_AGAIN", 87)
    assert server.runner.padded_rows(plan) == 0


def test_a_chunk_of_one_token_that_does_not_sample_runs_eagerly(server):
    """It looks like a decode row, but asks for no logits."""
    server.add("a", [1, 2, 3])
    server.add("b", [1, 2, 3])
    plan = server.plan({"a": 1, "b": 1}, silent=["a"])
    assert not plan.decode_only
    assert server.runner.padded_rows(plan) == 0
