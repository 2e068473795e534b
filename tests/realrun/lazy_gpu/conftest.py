"""A lazy GPU as torch's CUDA device, with FlashInfer's own Python."""

import os
import sys
import warnings
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from realrun.testing.flashinfer_modules import lazy_flashinfer
from realrun.testing.lazy_gpu import LazyGpu
from realrun.testing.lazy_torch import lazy_cuda

# `make test` puts FlashInfer's Python here, without the libraries that need a GPU.
FLASHINFER = Path(__file__).parents[3] / ".flashinfer"

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def flashinfer(tmp_path_factory):
    """FlashInfer's Python can be imported."""
    if find_spec("flashinfer") is None:
        if not (FLASHINFER / "flashinfer").is_dir():
            pytest.skip("no FlashInfer: `make .flashinfer/.done` fetches its Python")
        sys.path.append(str(FLASHINFER))
    # It makes folders for what it compiles.
    os.environ.setdefault("FLASHINFER_WORKSPACE_BASE", str(tmp_path_factory.mktemp("flashinfer")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import flashinfer  # noqa: F401, PLC0415


@contextmanager
def installed(gpu, *, with_flashinfer=True):
    with ExitStack() as stack:
        stack.enter_context(lazy_cuda(gpu))
        gpu.loaded = stack.enter_context(lazy_flashinfer(gpu)) if with_flashinfer else []
        yield gpu


@pytest.fixture
def use_gpu(flashinfer):
    """`with use_gpu(gpu):` runs on this GPU."""
    return installed


@pytest.fixture
def gpu(flashinfer):
    """Such a GPU, in use."""
    with installed(LazyGpu()) as gpu:
        yield gpu


@pytest.fixture
def bare_gpu():
    """Such a GPU without FlashInfer."""
    with installed(LazyGpu(), with_flashinfer=False) as gpu:
        yield gpu


HEADS = {
    "gpt2": (12, 12, 64),
    "qwen2.5-0.5b": (14, 2, 64),
    "qwen3-0.6b": (16, 8, 128),
    "llama-3.1-8b": (32, 8, 128),
}


@pytest.fixture(params=HEADS)
def heads(request):
    """What attention needs of a model: the heads of a packaged one, and a layer."""
    num_heads, num_kv_heads, head_dim = HEADS[request.param]
    return SimpleNamespace(
        name=request.param,
        shape=SimpleNamespace(
            num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, num_layers=1
        ),
        max_positions=131_072,
        dtype=torch.bfloat16,
        device=torch.device("cuda", 0),
    )
