"""Captured decode passes, their sizes, padding and fixed inputs: on the CPU with a fake capture."""

import pytest
import torch

from realrun.attention.choose import build_attention
from realrun.model.kv_tensors import KVTensors
from realrun.runner.graphs import DecodeGraphs, graph_sizes, max_pages_of_rows
from realrun.runner.model_runner import ModelRunner

PAGE_SIZE = 4


class FakeRecording:
    """Replays by running the work again, into the same output."""

    def __init__(self, work):
        self._work = work
        self.output = work().clone()
        self.num_replays = 0

    def replay(self):
        self.num_replays += 1
        self.output.copy_(self._work())


class FakeRecorder:
    def __init__(self):
        self.recordings: list[FakeRecording] = []

    def record(self, work):
        self.recordings.append(FakeRecording(work))
        return self.recordings[-1]


def make_graphs(model, kv, sizes):
    recorder = FakeRecorder()
    graphs = DecodeGraphs(
        model,
        kv,
        sizes=sizes,
        make_attention=lambda _: build_attention("reference", model, kv, model.device),
        recorder=recorder,
    )
    return graphs, recorder


@pytest.mark.parametrize(
    ("max_rows", "sizes"),
    [
        (1, (1,)),
        (3, (1, 2, 3)),
        (8, (1, 2, 4, 8)),
        (24, (1, 2, 4, 8, 16, 24)),
        (30, (1, 2, 4, 8, 16, 24, 30)),
    ],
)
def test_graph_sizes_end_at_the_largest_batch(max_rows, sizes):
    """1, 2, 4, every 8, and the largest batch itself."""
    assert graph_sizes(max_rows) == sizes


@pytest.mark.parametrize(("num_rows", "padded"), [(1, 1), (3, 4), (4, 4), (5, 8), (9, 0)])
def test_padded_rows_smallest_size_that_fits(paged_models, num_rows, padded):
    """The next size up, or none: the batch then runs eagerly."""
    model = paged_models["llama"]
    graphs, _ = make_graphs(model, KVTensors(model, num_pages=4, page_size=PAGE_SIZE), (1, 2, 4, 8))
    assert graphs.padded_rows(num_rows) == padded


def test_max_pages_counts_shared_pages_once_a_row(paged_models):
    """Rows are bounded by the model's positions and by the pool, each row by itself."""
    model = paged_models["llama"]
    small = KVTensors(model, num_pages=20, page_size=PAGE_SIZE)
    large = KVTensors(model, num_pages=512, page_size=PAGE_SIZE)
    assert max_pages_of_rows(3, model, small) == 3 * 21
    assert max_pages_of_rows(3, model, large) == 3 * 512 // PAGE_SIZE


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_replayed_decodes_equal_eager_ones(paged_models, paged_requests, architecture):
    """Padded or not, again and again in any order of sizes, logits are those of eager passes."""
    model = paged_models[architecture]
    eager, replayed = (paged_requests(model, PAGE_SIZE) for _ in range(2))
    graphs, recorder = make_graphs(model, replayed.kv, (1, 2, 4))
    replayed.runner = ModelRunner(model, replayed.kv, replayed.runner.attention, graphs=graphs)
    prompts = {"a": 5, "b": 1, "c": 8, "d": 3, "e": 2}
    for requests in (eager, replayed):
        for shift, (rid, length) in enumerate(prompts.items()):
            requests.add(rid, [(7 * index + 13 * shift) % 97 for index in range(length + 8)])
        requests.step(prompts)
    for rids in ("abc", "a", "dcba", "ab", "abcde", "c"):
        rows = dict.fromkeys(rids, 1)
        want, got = eager.step(rows), replayed.step(rows)
        assert list(got) == list(rids)
        for rid in rids:
            torch.testing.assert_close(got[rid], want[rid])
    # Passes are captured from the largest; the batch of five ran without a graph.
    assert [recording.num_replays for recording in recorder.recordings] == [2, 1, 2]


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_drafts_are_verified_by_rows_of_one_token(paged_models, paged_requests, architecture):
    """Logits after each draft are those of an eager pass, across pages and with padding."""
    model = paged_models[architecture]
    eager, replayed = (paged_requests(model, PAGE_SIZE) for _ in range(2))
    graphs, recorder = make_graphs(model, replayed.kv, (8, 16))
    replayed.runner = ModelRunner(model, replayed.kv, replayed.runner.attention, graphs=graphs)
    prompts = {"a": 5, "b": 1, "c": 8}
    for requests in (eager, replayed):
        for shift, (rid, length) in enumerate(prompts.items()):
            requests.add(rid, [(7 * index + 13 * shift) % 97 for index in range(length + 20)])
        requests.step(prompts)
    for rows in ({"a": 5, "b": 1, "c": 3}, {"c": 1, "a": 4}, {"b": 2, "a": 1}, {"b": 17}):
        torch.testing.assert_close(replayed.verify(rows), eager.verify(rows))
    # The last step has more tokens than the largest pass has rows.
    assert [recording.num_replays for recording in recorder.recordings] == [1, 2]


def test_replay_waits_for_no_token_of_rows_that_fill_up(paged_models):
    """Fewer token ids than rows: what is left from before does."""
    model = paged_models["llama"]
    kv = KVTensors(model, num_pages=4, page_size=PAGE_SIZE)
    graphs, _ = make_graphs(model, kv, (4,))
    logits = graphs.replay(4, torch.tensor([5, 6]))
    assert logits.shape == (4, 97)
    assert logits.isfinite().all()
