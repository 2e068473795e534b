"""What a step enqueues: how many launches, which copies, and in which order."""

import json

import numpy as np
import pytest
import torch

from realrun.attention.flashinfer import FlashInferAttention
from realrun.batches.batch_plan import plan_batch
from realrun.device.cuda_stream import CudaStream
from realrun.model.kv_tensors import KVTensors
from realrun.model.paged_model import load_model
from realrun.runner.cuda_graph import capture_decodes
from realrun.runner.model_runner import ModelRunner
from realrun.server.step_work import StepWork, step_inputs

LLAMA = {
    "model_type": "llama",
    "hidden_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "intermediate_size": 96,
    "vocab_size": 97,
    "max_position_embeddings": 256,
}
GPT2 = {"model_type": "gpt2", "n_embd": 128, "n_head": 2, "n_positions": 256, "vocab_size": 97}


@pytest.fixture
def step_of(gpu, tmp_path):
    """A function that runs one step of a model of `num_layers` layers and returns its log."""

    def run(config, num_layers, query_lens, max_graph_rows=0):
        layers = {"n_layer" if "n_embd" in config else "num_hidden_layers": num_layers}
        path = tmp_path / "m.json"
        path.write_text(json.dumps({**config, **layers}))
        model = load_model(str(path), device="cuda", dtype="bfloat16")
        kv = KVTensors(model, num_pages=8, page_size=16)
        stream = CudaStream(model.device)
        graphs = None
        if max_graph_rows:
            graphs = stream.prepare(lambda: capture_decodes(model, kv, max_graph_rows))
        runner = ModelRunner(model, kv, FlashInferAttention(model, kv), graphs=graphs)
        rows = len(query_lens)
        plan = plan_batch(
            page_table=np.arange(rows, dtype=np.int32)[:, None],
            query_lens=np.array(query_lens, dtype=np.int32),
            kv_lens=np.array(query_lens, dtype=np.int32),
            samples=np.ones(rows, dtype=np.int64),
            page_size=16,
        )
        last_tokens = torch.zeros(rows, dtype=torch.int64, device=model.device)
        gpu.synchronise()
        gpu.log.clear()
        slots = np.arange(rows)
        work = stream.prepare(
            lambda: StepWork(
                runner,
                runner.prepare(plan),
                step_inputs(
                    np.ones(sum(query_lens), dtype=np.int64),
                    np.repeat(slots, query_lens),
                    slots,
                    model.device,
                ),
                last_tokens,
            )
        )
        stream.submit(work).result()
        return list(gpu.log)

    return run


@pytest.mark.parametrize(
    ("config", "num_launches"),
    [
        (LLAMA, 11),
        (LLAMA | {"model_type": "qwen2"}, 11),
        (LLAMA | {"model_type": "qwen3"}, 13),
        (GPT2, 12),
    ],
    ids=["llama", "qwen2", "qwen3", "gpt2"],
)
def test_layer_takes_few_launches(step_of, config, num_launches):
    """As many as the docstrings of the forward passes say: a prefill waits for each of them."""
    step_of(config, 1, [5, 1])  # the library makes its tables in the first step
    one, three = (
        sum(kind == "launch" for kind, _ in step_of(config, layers, [5, 1])) for layers in (1, 3)
    )
    assert (three - one) / 2 == num_launches


def test_replayed_step_copies_then_replays_then_samples(step_of):
    """The plan, the inputs and the tokens go to the device first; one token a row comes back."""
    log = step_of(LLAMA, 2, [1, 1, 1], max_graph_rows=4)
    names = [name if kind == "copy" else kind for kind, name in log]
    graph = names.index("graph")
    assert set(names[: graph - 1]) <= {"to device", "mark", "launch"}
    assert names[:graph].count("to device") == 5
    assert names.count("graph") == 1
    assert names[-2:] == ["to host", "mark"]
    assert names.count("to host") == 1


def test_tensor_goes_to_the_device_however_the_call_names_it(bare_gpu):
    """And to another dtype of the host without any device."""
    host = torch.ones(2)
    for moved in (host.to("cuda"), host.to(device="cuda"), host.to(device=torch.device("cuda"))):
        assert moved.device.type == "cuda"
    assert host.to(device="cuda", dtype=torch.float64).dtype is torch.float64
    assert host.to(dtype=torch.float64).device.type == "cpu"
