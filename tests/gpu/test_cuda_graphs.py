"""Captured decode passes on a GPU, and `realrun check` as a whole."""

import numpy as np
import pytest
import torch

from realrun.attention.flashinfer import FlashInferAttention
from realrun.batches.batch_plan import plan_batch
from realrun.check.run_checks import run_checks
from realrun.model.kv_tensors import KVTensors
from realrun.runner.cuda_graph import capture_decodes
from realrun.runner.model_runner import ModelRunner

LONG = 100_000_000


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim", "model_type"),
    [(4, 4, 64, "gpt2"), (14, 2, 64, "qwen2"), (8, 2, 128, "llama"), (4, 2, 128, "qwen3")],
)
@pytest.mark.parametrize("page_size", [1, 16])
def test_all_checks_agree(make_model, num_heads, num_kv_heads, head_dim, model_type, page_size):
    """Every comparison can be made on a Hopper GPU, and agrees."""
    model = make_model(num_heads, num_kv_heads, head_dim, model_type=model_type)
    for comparison in run_checks(model, page_size=page_size):
        assert comparison.error is not None, comparison
        assert comparison.ok, comparison


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(4, 4), (14, 2)])
def test_replays_queued_up_equal_eager_passes(make_model, num_heads, num_kv_heads):
    """Steps of changing sizes, planned and replayed while the device is busy, one by one right."""
    model = make_model(num_heads, num_kv_heads, 64)
    kv = KVTensors(model, num_pages=256, page_size=16)
    for layer in kv.layers:
        layer.normal_()
    attention = FlashInferAttention(model, kv)
    replaying = ModelRunner(model, kv, attention, graphs=capture_decodes(model, kv, max_rows=8))
    eager = ModelRunner(model, kv, attention)
    steps = [(rows, context) for context in (5, 700, 64) for rows in (3, 3, 1, 8, 7)]

    def run(runner, rows, context):
        table = np.arange(rows * 50, dtype=np.int32).reshape(rows, 50) % 250
        plan = plan_batch(
            page_table=table,
            query_lens=np.ones(rows, dtype=np.int32),
            kv_lens=(context + np.arange(rows)).astype(np.int32),
            samples=np.ones(rows, dtype=np.bool_),
            page_size=16,
        )
        token_ids = torch.arange(rows, device=model.device) + context
        return runner.forward(runner.prepare(plan), token_ids).clone()

    before = [layer.clone() for layer in kv.layers]
    want = [run(eager, *step) for step in steps]
    for layer, values in zip(kv.layers, before, strict=True):
        layer.copy_(values)
    torch.cuda.synchronize()
    torch.cuda._sleep(LONG)
    got = [run(replaying, *step) for step in steps]
    for first, second in zip(got, want, strict=True):
        torch.testing.assert_close(first, second, rtol=1 / 32, atol=1 / 16)
