"""Host time of planning the attention of a decode step, without kernels: `make bench`."""

from contextlib import ExitStack, nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch

from realrun.attention.flashinfer_shape import AttentionShape
from realrun.attention.flashinfer_wrappers import _GraphDecodeWrapper, plan_decode
from realrun.batches.batch_plan import plan_batch

pytestmark = [pytest.mark.benchmark_suite, pytest.mark.filterwarnings("default")]

FLASHINFER = Path(__file__).parents[2] / ".flashinfer"
LLAMA_8B = AttentionShape(
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    page_size=16,
    dtype=torch.bfloat16,
    device=torch.device("cpu"),
)
ROUNDS = 41
CONTEXT = 1_000


@pytest.fixture
def library(tmp_path, monkeypatch):
    """FlashInfer's Python, on a host whose memory is as good as pinned; kernels do nothing."""
    if find_spec("flashinfer") is None:
        monkeypatch.syspath_prepend(str(FLASHINFER))
    monkeypatch.setenv("FLASHINFER_WORKSPACE_BASE", str(tmp_path))
    library = import_module("flashinfer")
    nothing = SimpleNamespace(plan=lambda *_: [0], ragged_run=None, paged_run=None)
    spec = SimpleNamespace(build_and_load=lambda: nothing)
    empty = torch.empty

    def unpinned_empty(*args, pin_memory=False, **options):
        return empty(*args, **options)

    import_module("flashinfer.prefill").get_batch_prefill_module.cache_clear()
    with ExitStack() as stack:
        for owner, name, value in (
            (import_module("flashinfer.prefill"), "gen_batch_prefill_module", lambda *_: spec),
            (torch, "empty", unpinned_empty),
            (torch.Tensor, "pin_memory", torch.Tensor.clone),
            (torch.cuda, "device", lambda _: nullcontext()),
        ):
            stack.enter_context(patch.object(owner, name, value))
        yield library
    import_module("flashinfer.prefill").get_batch_prefill_module.cache_clear()


def planner(library, num_rows, *, is_ours):
    """Plans `num_rows` rows: as the runner does, or as the library does by itself."""
    pages = -(-CONTEXT // LLAMA_8B.page_size)
    plan = plan_batch(
        page_table=np.arange(num_rows * pages, dtype=np.int32).reshape(num_rows, pages),
        query_lens=np.ones(num_rows, dtype=np.int32),
        kv_lens=np.full(num_rows, CONTEXT, dtype=np.int32),
        samples=np.ones(num_rows, dtype=np.int64),
        page_size=LLAMA_8B.page_size,
    )
    workspace = torch.zeros(1024, dtype=torch.uint8)
    indices = torch.zeros(num_rows * pages, dtype=torch.int32)
    wrapper = _GraphDecodeWrapper(library, workspace, indices, num_rows, use_tensor_cores=True)
    planned = wrapper if is_ours else wrapper._wrapper
    plan_decode(wrapper, plan, LLAMA_8B, is_graph=True)
    return lambda: plan_decode(planned, plan, LLAMA_8B, is_graph=True)


def by_turns_us(*works):
    """Median times, each work in every round, so that a busy machine slows all of them down."""
    times = [[] for _ in works]
    for _ in range(ROUNDS):
        for work, taken in zip(works, times, strict=True):
            begin_ns = perf_counter_ns()
            work()
            taken.append(perf_counter_ns() - begin_ns)
    return [median(taken) / 1_000 for taken in times]


@pytest.mark.benchmark(group="attention plan of 256 decode rows")
def test_plan_of_256_rows_takes_the_host_little(library, benchmark):
    """A quarter of the library's own plan at most, and less than twice a plan of 8 rows."""
    ours = planner(library, 256, is_ours=True)
    theirs = planner(library, 256, is_ours=False)
    few = planner(library, 8, is_ours=True)
    ours_us, theirs_us, few_us = by_turns_us(ours, theirs, few)
    benchmark.extra_info.update(library_us=theirs_us, eight_rows_us=few_us)
    benchmark.pedantic(ours, rounds=ROUNDS, iterations=20)
    assert ours_us < theirs_us / 4, f"{ours_us:.0f} us, the library {theirs_us:.0f} us"
    assert ours_us < 2 * few_us, f"{ours_us:.0f} us, 8 rows {few_us:.0f} us"
