"""FlashInfer's own wrappers, without its kernels: every call keeps its contract, and is right."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from realrun.attention.flashinfer import FlashInferAttention, GraphDecodeAttention
from realrun.attention.flashinfer_shape import AttentionShape, attention_shape, workspace_bytes
from realrun.attention.flashinfer_wrappers import FlashInferWrappers
from realrun.attention.reference import ReferenceAttention
from realrun.batches.batch_plan import plan_batch
from realrun.batches.plan_tensors import plan_tensors
from realrun.model.kv_tensors import KVTensors
from realrun.testing.device_tensor import CUDA
from realrun.testing.flashinfer_contract import ContractError
from realrun.testing.flashinfer_plans import PlanShape, decode_sizes, fa2_sizes, fa3_sizes

CPU = torch.device("cpu")
KV_LENS = [1, 17, 130, 32, 2]
BATCHES = [
    ([1] * 5, "auto"),
    ([1, 17, 100, 31, 2], "fa2"),
    ([1, 17, 100, 31, 2], "fa3"),
    ([1, 1, 9, 1, 1], "auto"),
]


def make_plan(query_lens, kv_lens, kv, num_columns=None):
    """A plan with pages in random order, each row with its own as far as there are enough."""
    counts = [-(-length // kv.page_size) for length in kv_lens]
    order = np.random.default_rng(3).permutation(kv.num_pages).astype(np.int32)
    table = np.resize(order, (len(kv_lens), num_columns or max(counts)))
    return plan_batch(
        page_table=table,
        query_lens=np.array(query_lens, dtype=np.int32),
        kv_lens=np.array(kv_lens, dtype=np.int32),
        samples=np.ones(len(kv_lens), dtype=np.bool_),
        page_size=kv.page_size,
    )


def random_kv(model, page_size, num_pages=None):
    """Random KV on the pages of requests; NaN on the page that no request has."""
    kv = KVTensors(model, num_pages=num_pages or 400 // page_size, page_size=page_size)
    kv.layers[0].normal_()
    kv.layers[0][kv.scratch_page] = float("nan")
    return kv


def expected(plan, query, kv, gpu):
    """The reference attention, in float32 on the host."""
    gpu.synchronise()
    layer = kv.layers[0].memory.float()
    inputs = plan_tensors(plan, CPU)
    reference = ReferenceAttention(layer, query.shape[1])
    return reference.plan(plan).run(0, query.memory.float(), layer, inputs)


def assert_near(got, want):
    torch.testing.assert_close(got.cpu().float(), want, rtol=1 / 64, atol=1 / 64)


def test_every_plan_equals_the_reference(gpu, heads):
    """Decode, prefill and mixed batches, with pages of 1 and of 16 tokens."""
    for page_size in (1, 16):
        kv = random_kv(heads, page_size)
        backends = {
            kernel: FlashInferAttention(heads, kv, prefill_backend=kernel)
            for kernel in ("auto", "fa2", "fa3")
        }
        for query_lens, kernel in BATCHES:
            plan = make_plan(query_lens, KV_LENS, kv)
            shape = (heads.shape.num_heads, plan.num_tokens, heads.shape.head_dim)
            query = torch.randn(shape, dtype=heads.dtype, device=heads.device).transpose(0, 1)
            want = expected(plan, query, kv, gpu)
            inputs = plan_tensors(plan, heads.device)
            got = backends[kernel].plan(plan).run(0, query, kv.layers[0], inputs)
            assert_near(got, want)
    decodes = [name for name in gpu.loaded if name.startswith("batch_decode")]
    assert bool(decodes) is (heads.name in ("gpt2", "qwen3-0.6b"))
    assert any(name.endswith("_sm90") for name in gpu.loaded)


def graph_attention(heads, kv, num_rows, num_indices):
    shape = attention_shape(heads, kv)
    wrappers = FlashInferWrappers(shape)
    num_bytes = workspace_bytes(shape, num_sms=132, num_graph_rows=num_rows)
    return GraphDecodeAttention(
        shape,
        num_rows,
        wrappers=wrappers,
        workspace=wrappers.workspace(num_bytes),
        indices=torch.zeros(num_indices, dtype=torch.int32, device=heads.device),
    )


def test_captured_attention_follows_each_new_plan(gpu, heads):
    """One graph, replayed with plans of growing and shrinking contexts, all of them queued up."""
    kv = random_kv(heads, 16, num_pages=400)
    attention = graph_attention(heads, kv, 4, 4 * 128)
    planned = attention.plan(make_plan([1] * 4, [1] * 4, kv))
    size = (4, heads.shape.num_heads, heads.shape.head_dim)
    query = torch.randn(size, dtype=heads.dtype, device=heads.device)
    gpu.synchronise()
    with gpu.capturing(gpu.default) as replay:
        output = planned.run(0, query, kv.layers[0], None)
    plans = [make_plan([1] * 4, lens, kv) for lens in ([1, 30, 700, 16], [1800, 1, 1, 1], [5] * 4)]
    want = [expected(plan, query, kv, gpu) for plan in plans]
    got = []
    for plan in plans:
        attention.plan(plan)
        replay()
        got.append(output.clone())
    for attended, reference in zip(got, want, strict=True):
        assert_near(attended, reference)


def test_largest_graph_takes_every_context(gpu, heads):
    """256 rows of 1 to 131,072 tokens: the workspace holds each plan; all have the same size."""
    kv = random_kv(heads, 16, num_pages=64)
    attention = graph_attention(heads, kv, 256, 256 * 8192)
    sizes = set()
    for longest in (1, 100, 5_000, 131_072):
        kv_lens = np.linspace(1, longest, 256).astype(int).tolist()
        planned = attention.plan(make_plan([1] * 256, kv_lens, kv, num_columns=8192))
        sizes.add(tuple(planned._wrapper._wrapper._plan_info))
        gpu.synchronise()
    assert len(sizes) == 1


@given(
    query_lens=st.lists(st.integers(1, 5_000), min_size=1, max_size=12),
    context=st.lists(st.integers(0, 60_000), min_size=12, max_size=12),
    heads=st.sampled_from([(12, 12, 64), (14, 2, 64), (16, 8, 128), (32, 8, 128), (40, 8, 128)]),
    page_size=st.sampled_from([1, 16, 64]),
    num_sms=st.integers(16, 160),
)
def test_workspaces_hold_every_plan(query_lens, context, heads, page_size, num_sms):
    """The lists of work fit into FlashInfer's 8 MiB, the partial results into our workspace."""
    num_heads, num_kv_heads, head_dim = heads
    shape = AttentionShape(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        page_size=page_size,
        dtype=torch.bfloat16,
        device=CPU,
    )
    lens = zip(query_lens, context, strict=False)
    pages = [-(-(length + before) // page_size) for length, before in lens]
    rows, ones = len(pages), [1] * len(pages)
    for is_graph in (False, True):
        plan = PlanShape(num_heads, num_kv_heads, head_dim, page_size, num_sms, is_graph)
        room = workspace_bytes(shape, num_sms=num_sms, num_graph_rows=rows if is_graph else 0)
        found = [fa2_sizes(plan, ones, pages, rows)]
        if not is_graph:
            found += [fa2_sizes(plan, query_lens, pages, sum(query_lens))]
            found += [fa3_sizes(plan, query_lens)]
        if not shape.decode_uses_tensor_cores:
            found.append(decode_sizes(plan, pages))
        for sizes in found:
            assert sizes.float_bytes <= room
            assert sizes.int_bytes <= 8 * 2**20


def plan_lists(plan):
    lists = (plan.qo_indptr, plan.kv_indptr, plan.kv_indices, plan.last_page_len)
    return [torch.from_numpy(numbers) for numbers in lists]


@pytest.fixture
def wrapper(gpu):
    """A prefill wrapper of FlashInfer, with a right plan: what it takes, by name."""
    shape = SimpleNamespace(num_heads=8, num_kv_heads=2, head_dim=64, num_layers=1)
    heads = SimpleNamespace(shape=shape, dtype=torch.bfloat16, device=CUDA)
    kv = random_kv(heads, 16)
    made = FlashInferWrappers(attention_shape(heads, kv))
    query = torch.randn(4, 8, 64, dtype=heads.dtype, device=CUDA)
    return SimpleNamespace(
        made=made,
        library=made.prefill(made.workspace(128 * 2**20), "fa2"),
        lists=plan_lists(make_plan([3, 1], [40, 20], kv)),
        long_lists=plan_lists(make_plan([3, 1], [9_000, 20], kv)),
        sizes=(8, 2, 64, 16),
        options={"q_data_type": heads.dtype, "kv_data_type": heads.dtype, "causal": True},
        run={"q": query, "paged_kv_cache": kv.layers[0], "out": torch.empty_like(query)},
    )


def test_contract_refuses_wrong_plans(wrapper):
    """Lists of another dtype or length, a window, and a workspace that is too small."""

    def plan(library, lists, **others):
        library.plan(*lists, *wrapper.sizes, **wrapper.options, **others)

    right = wrapper.lists
    with pytest.raises(ContractError, match="argument 4, qo_indptr: int32"):
        plan(wrapper.library, [right[0].long(), *right[1:]])
    with pytest.raises(ContractError, match="have no window"):
        plan(wrapper.library, right, window_left=4)
    with pytest.raises(ContractError, match="lengths do not fit the pages"):
        plan(wrapper.library, right, seq_lens=torch.tensor([70, 20], dtype=torch.int32))
    small = wrapper.made.prefill(wrapper.made.workspace(2**16), "fa2")
    with pytest.raises(ContractError, match=r"a plan needs \d+ bytes of 65536"):
        plan(small, wrapper.long_lists)
    plan(wrapper.library, right)
    with pytest.raises(ContractError, match="takes 19 arguments, got 1"):
        wrapper.library._cached_module.plan(right[0])


def test_contract_refuses_wrong_runs(wrapper, gpu):
    """Outputs with strides, KV on the host, page ids that do not exist, and old plans."""
    library, run = wrapper.library, wrapper.run
    library.plan(*wrapper.lists, *wrapper.sizes, **wrapper.options)
    slanted = torch.empty(8, 4, 64, dtype=torch.bfloat16, device=CUDA).transpose(0, 1)
    with pytest.raises(ContractError, match="ignore out's strides"):
        library.run(**run | {"out": slanted})
    with pytest.raises(ContractError, match="must lie on the device"):
        library.run(**run | {"paged_kv_cache": run["paged_kv_cache"].memory})
    library.run(**run)
    gpu.synchronise()
    library._int_workspace_buffer.fill_(7)
    library.run(**run)
    with pytest.raises(ContractError, match="another number of blocks"):
        gpu.synchronise()
    library.plan(*wrapper.lists, *wrapper.sizes, **wrapper.options)
    library._paged_kv_indices_buf.fill_(10_000)
    library.run(**run)
    with pytest.raises(ContractError, match="page id out of range"):
        gpu.synchronise()
