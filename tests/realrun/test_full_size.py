"""Models of full size through the whole forward pass, on torch's `meta` device: only sizes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from realrun.attention.flashinfer_shape import attention_shape, flashinfer_problem, workspace_bytes
from realrun.batches.batch_plan import plan_batch
from realrun.batches.plan_tensors import pack_plan, unpack_plan
from realrun.forward.kernels import TorchKernels
from realrun.model.config import find_model
from realrun.model.kv_tensors import KVTensors, page_bytes
from realrun.model.paged_model import PagedModel
from realrun.runner.graphs import graph_sizes, max_pages_of_rows

META = torch.device("meta")
GIB = 2**30
PAGE_SIZE = 16
QUERY_LENS = [700, 1, 33, 1]
# Parameters in billions, as the models' cards round them.
MODELS = {
    "gpt2": 0.124,
    "qwen2.5-0.5b": 0.49,
    "qwen2.5-7b": 7.6,
    "qwen3-0.6b": 0.6,
    "meta-llama/Llama-3.2-1B": 1.24,
    "llama-3.1-8b": 8.03,
    "Qwen/Qwen3-32B": 32.8,
    "llama-3.1-70b": 70.6,
    "meta-llama/Llama-3.1-405B": 405.9,
}


class SizesOnly:
    """Attention that notes its calls and checks what it is given."""

    def __init__(self, model, kv):
        self._model = model
        self._kv = kv
        self.layers = []

    def run(self, layer, query, kv, inputs):
        heads = self._model.shape
        assert query.shape == (sum(QUERY_LENS), heads.num_heads, heads.head_dim)
        assert query.dtype is kv.dtype is torch.bfloat16
        assert query.stride()[-2:] == (heads.head_dim, 1)
        assert kv is self._kv.layers[layer]
        self.layers.append(layer)
        return torch.empty_like(query, memory_format=torch.contiguous_format)


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    source = find_model(request.param, Path())
    with META:
        plain = AutoModelForCausalLM.from_config(source.config, dtype=torch.bfloat16)
    max_positions = int(source.config.max_position_embeddings)
    paged = PagedModel(plain.eval(), source.shape, max_positions, TorchKernels())
    assert sum(weight.numel() for weight in plain.parameters()) == source.shape.num_parameters
    assert source.shape.num_parameters / 1e9 == pytest.approx(MODELS[request.param], rel=0.03)
    return paged


def test_full_size_model_runs_through_the_whole_pass(model):
    """Every layer once and in order; logits of the rows that sample; packing copies no weight."""
    kv = KVTensors(model, num_pages=60, page_size=PAGE_SIZE)
    rows = len(QUERY_LENS)
    lens = np.array(QUERY_LENS, dtype=np.int32)
    plan = plan_batch(
        page_table=np.arange(44, dtype=np.int32)[None].repeat(rows, axis=0),
        query_lens=lens,
        kv_lens=lens,
        samples=np.array([0, 1, 1, 1]),
        page_size=PAGE_SIZE,
    )
    inputs = unpack_plan(pack_plan(plan, pinned=False).to(META), plan.num_tokens)
    attention = SizesOnly(model, kv)
    token_ids = torch.zeros(plan.num_tokens, dtype=torch.int64, device=META)
    logits = model.forward(token_ids, inputs, attention, kv.layers)
    assert attention.layers == list(range(model.shape.num_layers))
    assert (logits.shape, logits.dtype) == ((3, model.shape.vocab_size), torch.bfloat16)
    storages = {
        weight.untyped_storage()._cdata: weight.untyped_storage().nbytes()
        for weight in model.model.parameters()
    }
    assert sum(storages.values()) == model.shape.num_parameters * 2
    kv_bytes = sum(layer.untyped_storage().nbytes() for layer in kv.layers)
    assert kv_bytes == 61 * page_bytes(model, PAGE_SIZE)


def test_full_size_model_has_room_for_its_buffers(model):
    """FlashInfer takes it; workspaces and page ids of 256 rows stay far below a GPU's memory."""
    kv = KVTensors(model, num_pages=60, page_size=PAGE_SIZE)
    shape = attention_shape(model, kv)
    assert (flashinfer_problem(shape) or "").startswith("needs a CUDA device")
    assert shape.head_dim in (64, 128)
    for num_rows in (0, 256):
        assert workspace_bytes(shape, num_sms=160, num_graph_rows=num_rows) < GIB
    assert graph_sizes(256)[-1] == 256
    most_pages = 256 * model.max_positions // PAGE_SIZE
    assert max_pages_of_rows(256, model, kv) <= most_pages
    assert 4 * most_pages < GIB / 64
