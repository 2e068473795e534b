"""Models that load fast, with head sizes that FlashInfer's kernels support."""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from realrun.model.paged_model import PagedModel, load_model

_BASE = {
    "num_hidden_layers": 2,
    "intermediate_size": 256,
    "vocab_size": 1000,
    "max_position_embeddings": 8192,
}

MakeModel = Callable[..., PagedModel]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip these tests without a CUDA device and FlashInfer; ignore FlashInfer's warnings."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))
            elif find_spec("flashinfer") is None:
                item.add_marker(pytest.mark.skip(reason="FlashInfer is not installed"))
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """A llama-like model with these heads on the GPU. Equal arguments return the same model."""
    folder = tmp_path_factory.mktemp("configs")
    models: dict[str, PagedModel] = {}

    def make(
        num_heads: int, num_kv_heads: int, head_dim: int, *, model_type: str = "llama"
    ) -> PagedModel:
        name = f"{model_type}-{num_heads}-{num_kv_heads}-{head_dim}"
        if name not in models:
            config = {
                **_BASE,
                "model_type": model_type,
                "hidden_size": num_heads * head_dim,
                "num_attention_heads": num_heads,
                "num_key_value_heads": num_kv_heads,
                "head_dim": head_dim,
            }
            if model_type == "gpt2":
                config = {
                    "model_type": "gpt2",
                    "n_layer": 2,
                    "n_embd": num_heads * head_dim,
                    "n_head": num_heads,
                    "n_positions": 1024,
                    "vocab_size": 1000,
                }
            path = folder / f"{name}.json"
            path.write_text(json.dumps(config))
            models[name] = load_model(str(path), device="cuda", dtype="bfloat16")
        return models[name]

    return make
