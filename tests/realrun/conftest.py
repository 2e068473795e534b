"""Tiny models of every architecture, plain and paged, and requests on scrambled pages."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from realrun.attention.choose import build_attention
from realrun.batches.batch_plan import BatchPlan, plan_batch
from realrun.model.kv_tensors import KVTensors
from realrun.model.paged_model import PagedModel, load_model
from realrun.runner.model_runner import ModelRunner
from realrun.runner.warm_runner import RunnerOptions, warm_runner
from realrun.server.serve_workload import serve
from sim.core.packed import Line
from sim.engine.server_config import ServerConfig
from sim.workload.workload import Workload

_LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 97,
    "max_position_embeddings": 512,
}
ARCHITECTURES = {
    "llama": {**_LLAMA, "rope_theta": 500000.0},
    # Three query heads a KV head: not a power of two.
    "qwen2": {**_LLAMA, "model_type": "qwen2", "hidden_size": 96, "num_attention_heads": 6},
    # Heads wider than hidden_size / num_attention_heads.
    "qwen3": {**_LLAMA, "model_type": "qwen3", "head_dim": 32, "tie_word_embeddings": True},
    "gpt2": {
        "model_type": "gpt2",
        "n_layer": 2,
        "n_embd": 64,
        "n_head": 4,
        "n_positions": 512,
        "vocab_size": 97,
        "scale_attn_by_inverse_layer_idx": True,
    },
}

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_collection_before_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes most of a second where a test suite is loaded, and only makes steps more even."""
    monkeypatch.setattr("gc.collect", lambda: 0)


class PagedRequests:
    """Requests by name, whose pages are in random order.

    KV that no step has written is NaN. A step that reads it gives NaN logits.
    """

    def __init__(self, model: PagedModel, page_size: int, num_tokens: int = 2048) -> None:
        num_pages = num_tokens // page_size
        self.model = model
        self.page_size = page_size
        self.kv = KVTensors(model, num_pages=num_pages, page_size=page_size)
        for layer in self.kv.layers:
            layer.fill_(float("nan"))
        self.runner = ModelRunner(
            model, self.kv, build_attention("reference", model, self.kv, model.device)
        )
        self._free = np.random.default_rng(5).permutation(num_pages).tolist()
        self._tokens: dict[str, list[int]] = {}
        self._pages: dict[str, list[int]] = {}
        self._num_computed: dict[str, int] = {}

    def add(self, rid: str, tokens: Sequence[int], shared: tuple[str, int] = ("", 0)) -> None:
        """Add a request that shares this number of full pages with another request."""
        donor, num_pages = shared
        self._tokens[rid] = list(tokens)
        self._pages[rid] = self._pages[donor][:num_pages] if donor else []
        self._num_computed[rid] = num_pages * self.page_size

    def plan(
        self, rows: dict[str, int], silent: Sequence[str] = (), *, drafts: bool = False
    ) -> BatchPlan:
        """The plan of a step: how many tokens of each request; `silent` rows do not sample.

        With `drafts`, all others sample after each of their tokens.
        """
        kv_lens = [self._num_computed[rid] + count for rid, count in rows.items()]
        for rid, length in zip(rows, kv_lens, strict=True):
            while len(self._pages[rid]) * self.page_size < length:
                self._pages[rid].append(self._free.pop())
        table = np.full((len(rows), max(len(self._pages[rid]) for rid in rows)), -1, np.int32)
        for row, rid in enumerate(rows):
            table[row, : len(self._pages[rid])] = self._pages[rid]
        return plan_batch(
            page_table=table,
            query_lens=np.array(list(rows.values()), dtype=np.int32),
            kv_lens=np.array(kv_lens, dtype=np.int32),
            samples=np.array(
                [0 if rid in silent else num if drafts else 1 for rid, num in rows.items()]
            ),
            page_size=self.page_size,
        )

    def step(self, rows: dict[str, int], silent: Sequence[str] = ()) -> dict[str, Tensor]:
        """Run such a step; returns the logits of the requests that sample."""
        logits = self._run(rows, self.plan(rows, silent))
        sampling = [rid for rid in rows if rid not in silent]
        return dict(zip(sampling, logits, strict=True))

    def verify(self, rows: dict[str, int]) -> Tensor:
        """Run a step that samples after every token; returns all logits, row by row."""
        return self._run(rows, self.plan(rows, drafts=True))

    def _run(self, rows: dict[str, int], plan: BatchPlan) -> Tensor:
        token_ids: list[int] = []
        for rid, count in rows.items():
            start = self._num_computed[rid]
            token_ids += self._tokens[rid][start : start + count]
            self._num_computed[rid] += count
        return self.runner.forward(self.runner.prepare(plan), torch.tensor(token_ids))


@pytest.fixture(scope="session")
def config_paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A configuration file for each architecture."""
    folder = tmp_path_factory.mktemp("configs")
    paths = {name: folder / f"{name}.json" for name in ARCHITECTURES}
    for name, path in paths.items():
        path.write_text(json.dumps(ARCHITECTURES[name]))
    return paths


@pytest.fixture(scope="session")
def paged_models(config_paths: dict[str, Path]) -> dict[str, PagedModel]:
    """A paged model with random weights for each architecture, in float32 on the CPU."""
    return {
        name: load_model(str(path), device="cpu", dtype="float32")
        for name, path in config_paths.items()
    }


@pytest.fixture(scope="session")
def one_layer(tmp_path_factory: pytest.TempPathFactory) -> PagedModel:
    """A model of one layer, for tests that do not depend on what is computed."""
    path = tmp_path_factory.mktemp("one") / "config.json"
    path.write_text(json.dumps({**_LLAMA, "num_hidden_layers": 1}))
    return load_model(str(path), device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def plain_logits(paged_models: dict[str, PagedModel]) -> Callable[[str, Sequence[int]], Tensor]:
    """Plain transformers' logits of tokens: [num_tokens, vocab_size]."""
    plain = {}
    for name, paged in paged_models.items():
        config = type(paged.model.config).from_dict(ARCHITECTURES[name])
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
        model.load_state_dict(paged.model.state_dict())
        plain[name] = model

    def logits(name: str, tokens: Sequence[int]) -> Tensor:
        with torch.inference_mode():
            return plain[name](torch.tensor([list(tokens)])).logits[0]

    return logits


@pytest.fixture(scope="session")
def paged_requests() -> type[PagedRequests]:
    """The class of requests on scrambled pages."""
    return PagedRequests


@pytest.fixture(scope="session")
def serve_greedy() -> Callable[[PagedModel, ServerConfig, Workload], list[Line]]:
    """What serves a workload for real, on a server of this size; returns the run log's lines."""

    def run(model: PagedModel, config: ServerConfig, workload: Workload) -> list[Line]:
        with warm_runner(
            model,
            RunnerOptions(device="cpu"),
            num_pages=config.pool_tokens // config.page_size,
            page_size=config.page_size,
            max_rows=config.max_rows,
            cpu_threads=1,
        ) as warm:
            return list(serve(warm, config, workload, "greedy").lines())

    return run
