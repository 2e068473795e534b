"""The steps that run before anything is measured."""

import torch

from realrun.attention.choose import build_attention
from realrun.device.streams import CpuStream
from realrun.model.kv_tensors import KVTensors
from realrun.runner.model_runner import ModelRunner
from realrun.runner.warm_up import warm_up


def test_warm_up_covers_the_largest_step_of_each_kind(one_layer):
    """The longest chunk, alone and beside decode rows, and the most decode rows; on no page."""
    kv = KVTensors(one_layer, num_pages=4, page_size=16)
    attention = build_attention("reference", one_layer, kv, one_layer.device)
    runner, stream = ModelRunner(one_layer, kv, attention), CpuStream()
    lens = []
    prepare = runner.prepare

    def noted(plan):
        lens.append(plan.query_lens.tolist())
        return prepare(plan)

    runner.prepare = noted
    warm_up(runner, stream, max_rows=12, max_tokens=200)
    stream.close()
    for step in ([200], [200, *[1] * 8], [64], [64, *[1] * 8], [1], [1] * 12):
        assert step in lens
    assert max(map(sum, lens)) == 208
    assert all(torch.count_nonzero(layer[: kv.scratch_page]) == 0 for layer in kv.layers)
