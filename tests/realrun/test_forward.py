"""How many kernels a forward pass launches: what the host of a GPU has to do for each layer."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from realrun.batches.plan_tensors import plan_tensors
from realrun.forward.kernels import TorchKernels
from realrun.model.kv_tensors import KVTensors
from realrun.model.paged_model import PagedModel

# Operators that launch nothing.
VIEWS = {"view", "split", "split_with_sizes", "t", "transpose", "slice", "detach", "alias",
         "_unsafe_view", "empty_like", "flatten", "chunk", "unsqueeze", "expand"}  # fmt: skip


class Launches(TorchDispatchMode):
    """Counts operators, except inside the kernels, each of which counts as one."""

    def __init__(self):
        super().__init__()
        self.names = []
        self.is_inside = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if not self.is_inside and name not in VIEWS:
            self.names.append(name)
        return func(*args, **(kwargs or {}))


class CountedKernels:
    """The kernels of torch, as FlashInfer has them: one launch each."""

    def __init__(self, launches):
        self._launches = launches
        self._kernels = TorchKernels()

    def __getattr__(self, name):
        def call(*args):
            self._launches.names.append(name)
            self._launches.is_inside = True
            try:
                return getattr(self._kernels, name)(*args)
            finally:
                self._launches.is_inside = False

        return call


class Attention:
    """Attention that is one launch."""

    def __init__(self, launches):
        self._launches = launches

    def run(self, layer, query, kv, inputs):
        self._launches.names.append("attention")
        return torch.empty_like(query, memory_format=torch.contiguous_format)


# Embedding, first norm, two layers without the first's own norm, last norm, choice of rows, head.
@pytest.mark.parametrize(
    ("architecture", "count"),
    [
        ("llama", 2 + 2 * 11 - 1 + 3),
        ("qwen2", 2 + 2 * 11 - 1 + 3),
        ("qwen3", 2 + 2 * 13 - 1 + 3),
        # Two embeddings and their sum; the second layer has a factor for its queries.
        ("gpt2", 3 + 2 * 12 + 1 + 3),
    ],
)
def test_forward_launches(paged_models, paged_requests, architecture, count):
    """11 launches a layer, 13 with norms of heads, 12 of GPT-2."""
    launches = Launches()
    model = paged_models[architecture]
    counted = PagedModel(model.model, model.shape, 512, CountedKernels(launches))
    server = paged_requests(model, 16)
    server.add("a", [1, 2, 3])
    plan = server.plan({"a": 3})
    kv = KVTensors(model, num_pages=128, page_size=16)
    inputs = plan_tensors(plan, torch.device("cpu"))
    token_ids = torch.tensor([1, 2, 3])
    with launches:
        counted.forward(token_ids, inputs, Attention(launches), kv.layers)
    assert len(launches.names) == count, launches.names
