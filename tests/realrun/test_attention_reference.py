"""The reference backend against attention token by token; and which backend is chosen."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from realrun.attention.choose import build_attention
from realrun.attention.reference import ReferenceAttention
from realrun.batches.batch_plan import plan_batch
from realrun.batches.plan_tensors import plan_tensors
from realrun.model.kv_tensors import KVTensors
from sim.core.errors import InputError

CPU = torch.device("cpu")


def naive_attention(query, kv, plan, table):
    """Softmax over a token's own past, one token and head at a time, in double precision."""
    output = torch.empty_like(query)
    heads_per_kv_head = query.shape[1] // kv.shape[-2]
    kv = kv.double()
    for row in range(plan.num_rows):
        for token in range(plan.qo_indptr[row], plan.qo_indptr[row + 1]):
            seen = np.arange(plan.positions[token] + 1)
            pages, offsets = table[row, seen // plan.page_size], seen % plan.page_size
            for head in range(query.shape[1]):
                keys = kv[pages, 0, offsets, head // heads_per_kv_head]
                values = kv[pages, 1, offsets, head // heads_per_kv_head]
                products = keys @ query[token, head].double() / math.sqrt(query.shape[2])
                output[token, head] = (products.softmax(0) @ values).to(output.dtype)
    return output


@st.composite
def batches(draw):
    page_size = draw(st.sampled_from([1, 3, 16, 128]))
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 40), st.sampled_from([1, 1, 1, 2, 9])),
            min_size=1,
            max_size=6,
        )
    )
    num_kv_heads, heads_per_kv_head = draw(st.sampled_from([(1, 1), (2, 1), (2, 3), (1, 7)]))
    return page_size, rows, num_kv_heads, heads_per_kv_head


def attend(page_size, rows, num_kv_heads, heads_per_kv_head, dtype=torch.float32):
    """The backend's result and the right one, for rows of (tokens before the step, new tokens)."""
    rng = np.random.default_rng(1)
    width = max(-(-(before + new) // page_size) for before, new in rows)
    table = rng.permutation(len(rows) * width).astype(np.int32).reshape(len(rows), width)
    query_lens = np.array([new for _, new in rows], dtype=np.int32)
    plan = plan_batch(
        page_table=table,
        query_lens=query_lens,
        kv_lens=query_lens + np.array([before for before, _ in rows], dtype=np.int32),
        samples=np.ones(len(rows), dtype=np.bool_),
        page_size=page_size,
    )
    generator = torch.Generator().manual_seed(2)
    shape = (table.size + 1, 2, page_size, num_kv_heads, 8)
    kv = torch.randn(shape, generator=generator).to(dtype)
    num_heads = num_kv_heads * heads_per_kv_head
    # The memory layout that models use: heads first.
    query = torch.randn(num_heads, plan.num_tokens, 8, generator=generator).to(dtype)
    query = query.transpose(0, 1)
    step = ReferenceAttention(kv, num_heads).plan(plan)
    result = step.run(0, query, kv, plan_tensors(plan, CPU))
    return result, naive_attention(query, kv, plan, table)


@given(batches())
def test_reference_equals_attention_token_by_token(batch):
    """Chunks over prefixes, decodes and whole prompts; grouped heads; any page size."""
    torch.testing.assert_close(*attend(*batch))


def test_reference_in_bfloat16_keeps_its_precision():
    """Half the bits, and no more error than they bring."""
    rows = [(30, 1), (3, 5), (100, 1)]
    torch.testing.assert_close(*attend(16, rows, 2, 2, torch.bfloat16), rtol=0.02, atol=0.02)


def test_steps_may_all_be_planned_before_any_of_them_runs():
    """What one step gathers does not leak into another, whether larger or smaller."""
    layer = torch.randn(5, 2, 4, 1, 8)
    query = torch.randn(1, 1, 8)
    table = np.arange(4, dtype=np.int32)[None]
    backend = ReferenceAttention(layer, 1)
    steps = []
    for kv_len in (3, 16, 5):
        plan = plan_batch(
            page_table=table,
            query_lens=np.array([1], dtype=np.int32),
            kv_lens=np.array([kv_len], dtype=np.int32),
            samples=np.array([True]),
            page_size=4,
        )
        steps.append((plan, backend.plan(plan)))
    for plan, step in steps:
        result = step.run(0, query, layer, plan_tensors(plan, CPU))
        torch.testing.assert_close(result, naive_attention(query, layer, plan, table))


@pytest.mark.parametrize("name", ["auto", "reference"])
def test_reference_is_chosen_on_a_cpu(name, paged_models):
    """Without a GPU `auto` means the reference."""
    model = paged_models["llama"]
    kv = KVTensors(model, num_pages=4, page_size=4)
    assert isinstance(build_attention(name, model, kv, model.device), ReferenceAttention)


def test_flashinfer_on_a_cpu_is_refused_in_one_line(paged_models):
    """A user who asks for it learns what it needs."""
    model = paged_models["llama"]
    kv = KVTensors(model, num_pages=4, page_size=4)
    with pytest.raises(InputError, match="attention flashinfer: needs a CUDA device"):
        build_attention("flashinfer", model, kv, model.device)
