"""Numbers of decode rows that are captured as CUDA graphs, and padding to them."""

import pytest

from sim.latency.features import graph_rows, padded_rows
from sim.sglang.section.scheduler import SglangSection
from sim.vllm.section.scheduler import VllmSection


@pytest.mark.parametrize(("rows", "graph", "padded"), [(1, 1, 1), (3, 4, 4), (4, 4, 4), (5, 0, 5)])
def test_graph_has_room_for_the_rows(rows, graph, padded):
    """The smallest one; rows above the largest graph run without one, and without padding."""
    assert graph_rows(rows, (1, 2, 4)) == graph
    assert padded_rows(rows, (1, 2, 4)) == padded


@pytest.mark.parametrize(
    ("largest", "count", "last"),
    [(8, 4, (2, 4, 8)), (30, 8, (16, 24, 30)), (256, 36, (240, 248, 256)), (576, 54, (544, 576))],
)
def test_graph_sizes_of_sglang(largest, count, last):
    """As many as SGLang 0.5.9 captures; the largest is always one of them."""
    sizes = SglangSection(cuda_graph_max_bs=largest).graph_sizes
    assert len(sizes) == count
    assert sizes[-len(last) :] == last
    assert SglangSection().graph_sizes == ()


@pytest.mark.parametrize(
    ("largest", "count", "last"),
    [(8, 4, (2, 4, 8)), (30, 6, (8, 16, 24)), (512, 51, (480, 496, 512))],
)
def test_graph_sizes_of_vllm(largest, count, last):
    """As many as vLLM 0.19 captures."""
    sizes = VllmSection(family="vllm", max_cudagraph_capture_size=largest).graph_sizes
    assert len(sizes) == count
    assert sizes[-len(last) :] == last
    assert VllmSection(family="vllm").graph_sizes == ()


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({"max_num_seqs": 4}, 8),
        ({"max_num_seqs": 1024, "max_num_batched_tokens": 2048}, 512),
        ({"max_cudagraph_capture_size": 2048}, 2048),
    ],
)
def test_small_prefill_steps_of_vllm_run_in_graphs(settings, tokens):
    """By default up to twice as many tokens as requests; with SGLang no step with prefill rows."""
    assert VllmSection(family="vllm", **settings).prefill_graph_tokens == tokens
    assert SglangSection(cuda_graph_max_bs=64).prefill_graph_tokens == 0
