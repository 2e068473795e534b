"""FlashInfer's attention against the reference in float32, on random queries, keys and values."""

import numpy as np
import pytest
import torch

from realrun.attention.flashinfer import FlashInferAttention
from realrun.attention.reference import ReferenceAttention
from realrun.batches.batch_plan import plan_batch
from realrun.batches.plan_tensors import plan_tensors
from realrun.model.kv_tensors import KVTensors

KV_LENS = [1, 17, 300, 1025, 64, 4000, 33, 2]
BATCHES = {
    "decode": [1] * 8,
    "prefill": [1, 17, 100, 513, 64, 2048, 33, 2],
    "mixed": [1, 17, 300, 1, 1, 1, 1, 1],
}
NUM_TOKENS = 8192
# About 50 ms of a GPU's cycles.
LONG = 100_000_000


def make_plan(query_lens, kv_lens, kv):
    num_columns = -(-max(kv_lens) // kv.page_size)
    pages = np.random.default_rng(3).permutation(kv.num_pages).astype(np.int32)
    table = np.zeros((len(kv_lens), num_columns), dtype=np.int32)
    start = 0
    for row, length in enumerate(kv_lens):
        count = -(-length // kv.page_size)
        table[row, :count] = pages[start : start + count]
        start += count
    return plan_batch(
        page_table=table,
        query_lens=np.array(query_lens, dtype=np.int32),
        kv_lens=np.array(kv_lens, dtype=np.int32),
        samples=np.ones(len(kv_lens), dtype=np.bool_),
        page_size=kv.page_size,
    )


def random_kv(model, page_size):
    """Random KV on the pages of requests; NaN on the page that no request has."""
    torch.manual_seed(1)
    num_pages = NUM_TOKENS // page_size + len(KV_LENS)
    kv = KVTensors(model, num_pages=num_pages, page_size=page_size)
    kv.layers[0].normal_()
    kv.layers[0][kv.scratch_page] = float("nan")
    return kv


def expected(plan, query, kv):
    layer = kv.layers[0].float()
    inputs = plan_tensors(plan, query.device)
    reference = ReferenceAttention(layer, query.shape[1])
    return reference.plan(plan).run(0, query.float(), layer, inputs)


def assert_near(got, want):
    """bfloat16 has 8 bits: outputs and softmax weights have errors of 1 / 256."""
    torch.testing.assert_close(got.float(), want, rtol=1 / 64, atol=1 / 64)


@pytest.mark.parametrize("page_size", [1, 16, 128])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(4, 4), (8, 2), (14, 2)])
@pytest.mark.parametrize(
    ("batch", "kernel"),
    [
        ("decode", "auto"),
        ("prefill", "fa2"),
        ("prefill", "fa3"),
        ("mixed", "fa2"),
        ("mixed", "fa3"),
    ],
)
def test_flashinfer_equals_reference(
    make_model, num_heads, num_kv_heads, head_dim, page_size, batch, kernel
):
    """Every kind of batch, group size, head width and page size, for queries of any strides."""
    model = make_model(num_heads, num_kv_heads, head_dim)
    kv = random_kv(model, page_size)
    plan = make_plan(BATCHES[batch], KV_LENS, kv)
    shape = (num_heads, plan.num_tokens, head_dim)
    query = torch.randn(shape, dtype=model.dtype, device=model.device).transpose(0, 1)
    backend = FlashInferAttention(model, kv, prefill_backend=kernel)
    inputs = plan_tensors(plan, model.device)
    want = expected(plan, query, kv)
    for queries in (query, query.contiguous()):
        assert_near(backend.plan(plan).run(0, queries, kv.layers[0], inputs), want)


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(4, 4), (14, 2)])
def test_flashinfer_plans_ahead_of_a_busy_device(make_model, num_heads, num_kv_heads):
    """Planning a step while those before it wait in the queue changes nothing of theirs."""
    model = make_model(num_heads, num_kv_heads, 64)
    kv = random_kv(model, 16)
    backend = FlashInferAttention(model, kv)
    steps = []
    for rows in range(1, 9):
        query_lens = [1] * rows if rows % 2 else [5 * rows, 1]
        steps.append(make_plan(query_lens, [7 * rows + 40] * len(query_lens), kv))
    queries = [
        torch.randn(plan.num_tokens, num_heads, 64, dtype=model.dtype, device=model.device)
        for plan in steps
    ]
    want = [expected(plan, query, kv) for plan, query in zip(steps, queries, strict=True)]
    inputs = [plan_tensors(plan, model.device) for plan in steps]
    torch.cuda.synchronize()
    torch.cuda._sleep(LONG)
    got = [
        backend.plan(plan).run(0, query, kv.layers[0], moved)
        for plan, query, moved in zip(steps, queries, inputs, strict=True)
    ]
    for first, second in zip(got, want, strict=True):
        assert_near(first, second)
