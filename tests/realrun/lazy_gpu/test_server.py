"""The real server on a lazy GPU: it never depends on a quick device."""

import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
import torch

from realrun.attention.flashinfer_wrappers import FlashInferWrappers
from realrun.batches.plan_tensors import plan_tensors
from realrun.device.cuda_stream import CudaStep, CudaStream
from realrun.model import weights
from realrun.runner import warm_up
from realrun.runner.graphs import _DecodePass, _scratch_plan
from realrun.runner.warm_runner import RunnerOptions
from realrun.server import executor, host_copies, serve_workload, step_work
from realrun.server.executor import TorchExecutor
from realrun.server.servable import servable_workload
from realrun.server.serve_workload import warm_server
from realrun.server.step_work import step_inputs
from realrun.testing.flashinfer_contract import ContractError
from realrun.testing.lazy_gpu import LazyGpu
from realrun.testing.lazy_torch import StreamHandle
from realrun.tokens.sampling import SamplingParams
from sim.core.errors import InvariantError
from sim.scenario.load import load_scenario

MODELS = {
    # Decodes on CUDA cores.
    "llama": {"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2},
    # Decodes on tensor cores.
    "qwen2": {"model_type": "qwen2", "num_attention_heads": 7, "num_key_value_heads": 1},
    "qwen3": {"model_type": "qwen3", "num_attention_heads": 4, "num_key_value_heads": 2},
    "gpt2": {"model_type": "gpt2", "n_layer": 2, "n_embd": 128, "n_head": 2, "n_positions": 512},
}
SCENARIO = """\
name: lazy
model: m.json
latency: {kind: linear, step_s: 0, per_prefill_token_s: 0, per_decode_request_s: 0,
  per_context_token_s: 0}
workload:
  kind: synthetic
  num_requests: 5
  arrivals: {kind: constant, rate_rps: 80}
  prompt_tokens: {kind: uniform, min: 4, max: 60}
  output_tokens: {kind: uniform, min: 2, max: 9}
scheduler: {page_size: 8, max_total_tokens: 640, context_length: 512, max_running_requests: 4,
  chunked_prefill_size: 16, enable_mixed_chunk: true}
"""


class SteppingClock:
    """A millisecond goes by whenever somebody looks at it."""

    def __init__(self):
        self._time_ns = 0

    def now_ns(self):
        self._time_ns += 1_000_000
        return self._time_ns

    def of_counter_ns(self, counter_ns):
        return self._time_ns

    def sleep_until(self, time_ns):
        self._time_ns = max(self._time_ns, time_ns)


@pytest.fixture
def served(use_gpu, tmp_path, monkeypatch):
    """Serves a scenario on a GPU; returns the decisions and all output tokens."""
    monkeypatch.setattr(serve_workload, "WallClock", SteppingClock)
    monkeypatch.setattr(warm_up, "_ROUNDS", 1)
    monkeypatch.setattr(weights, "_CHUNK_ELEMENTS", 1 << 14)
    launch = TorchExecutor.launch

    def run(name, gpu, overrides=(), **options):
        def launch_without_waiting(executor, batch):
            gpu.may_wait = False
            launched = launch(executor, batch)
            gpu.may_wait = True
            return launched

        monkeypatch.setattr(TorchExecutor, "launch", launch_without_waiting)
        config = {
            "num_hidden_layers": 2,
            "head_dim": 64,
            "hidden_size": 64 * MODELS[name].get("num_attention_heads", 0),
            "intermediate_size": 96,
            "vocab_size": 97,
            "max_position_embeddings": 512,
            **MODELS[name],
        }
        if name == "gpt2":
            config = {**MODELS[name], "vocab_size": 97}
        if name == "qwen2":
            del config["head_dim"]
        (tmp_path / "m.json").write_text(json.dumps(config))
        (tmp_path / "s.yaml").write_text(SCENARIO)
        loaded = load_scenario(tmp_path / "s.yaml", overrides)
        workload = servable_workload(loaded)
        with use_gpu(gpu), warm_server(loaded, RunnerOptions(device="cuda", **options)) as server:
            gpu.log.clear()
            done = server.serve(loaded, workload, "greedy")
        steps = [
            [line["mode"], line["n_decode"], line["prefill"], line["padded_rows"]]
            for line in done.lines
            if line["kind"] == "step"
        ]
        outputs = [line["output_ids"] for line in done.lines if line["kind"] == "req"]
        return steps, outputs

    return run


@pytest.mark.parametrize("model", MODELS)
def test_lazy_device_serves_the_same_tokens(served, model):
    """Prefill, chunks, mixed and decode steps, eager and as graphs, launched a step ahead.

    No launch waits for the device.
    """
    lazy, quick = LazyGpu(), LazyGpu(is_lazy=False)
    steps, outputs = served(model, lazy)
    assert (steps, outputs) == served(model, quick)
    assert len({tuple(tokens) for tokens in outputs}) > 1
    kinds = Counter(kind for kind, _ in lazy.log)
    assert kinds["graph"] == sum(padded_rows > 0 for *_, padded_rows in steps)
    assert {mode for mode, *_ in steps} == {"extend", "mixed", "decode"}


class DrawsForAll(dict):
    """Every request draws its tokens at random, within limits, and some not at first."""

    def get(self, rid, default=None):
        return SamplingParams(1.5, top_p=0.9, top_k=30, min_p=0.01, banned=(3, 5), banned_before=40)


DRAFTS = (
    "acceptance.rate=0.5",
    "workload.prompt_tokens={kind: constant, value: 30}",
    "scheduler={family: vllm, block_size: 8, num_gpu_blocks_override: 60, max_num_seqs: 6}",
    "scheduler.max_num_batched_tokens=40",
    "scheduler.speculative_config={method: ngram, num_speculative_tokens: 3, prompt_lookup_max: 1}",
)


@pytest.mark.parametrize("overrides", [(), DRAFTS], ids=["random tokens", "random tokens, drafts"])
def test_lazy_device_draws_the_same_tokens(served, monkeypatch, overrides):
    """Draws and draft tokens go to the device, and verified ones come back, in time."""
    make = TorchExecutor.__init__
    monkeypatch.setattr(
        TorchExecutor, "__init__", lambda *args: make(*args[:5], DrawsForAll(all=1))
    )
    lazy = served("llama", LazyGpu(), overrides)
    assert lazy == served("llama", LazyGpu(is_lazy=False), overrides)
    assert len({token for tokens in lazy[1] for token in tokens}) > 8


def test_graphs_verify_drafts(served):
    """With one row for each draft, the device finds the tokens that it finds without graphs."""
    length = "workload.output_tokens={kind: constant, value: 40}"
    roomy = (*DRAFTS, "scheduler.max_num_seqs=12", length)
    steps, outputs = served("llama", LazyGpu(), roomy)
    assert served("llama", LazyGpu(), roomy, graphs=False)[1] == outputs
    decodes = [(num_rows, padded) for mode, num_rows, _, padded in steps if mode == "decode"]
    # A graph has at most 7 rows more than it is given, so here drafts were given rows, too.
    assert any(padded - num_rows > 8 for num_rows, padded in decodes)


# Prompts share prefixes, which leave the small memories and come back from the larger one.
SHARED = (
    "workload.num_requests=12",
    "workload.arrivals.rate_rps=2",
    "workload.prefixes={groups: 3, tokens: {kind: constant, value: 40}, share_probability: 1}",
    "scheduler={family: vllm, block_size: 8, num_gpu_blocks_override: 40, max_num_seqs: 3}",
    "scheduler.async_scheduling=false",
    "scheduler.enable_prefix_caching=false",
)
HOST = (
    *SHARED,
    "scheduler.kv_offloading={capacity_tokens: 192, blocks_per_chunk: 2, load_tokens_per_s: 1000}",
)


# Each request is alone, and has one step: nothing waits for the copies that follow it.
ALONE = ("workload.arrivals.rate_rps=2", "workload.output_tokens={kind: constant, value: 1}")


@pytest.mark.parametrize("traffic", [(), ALONE], ids=["together", "alone"])
def test_kv_comes_back_from_cpu_memory(served, monkeypatch, traffic):
    """The tokens are those without CPU memory, and no copy needs a quick device."""
    monkeypatch.setattr(host_copies, "_PART_BYTES", 1 << 16)
    steps, outputs = served("llama", LazyGpu(), (*HOST, *traffic))
    assert sum(row[1] > 0 for *_, prefill, _ in steps for row in prefill) >= 4
    assert (steps, outputs) == served("llama", LazyGpu(is_lazy=False), (*HOST, *traffic))
    assert outputs == served("llama", LazyGpu(), (*SHARED, *traffic))[1]


class NoMark:
    """A mark that nobody waits for."""

    def record(self):
        pass

    synchronize = record


# What the server without a defect does, with and without graphs.
RIGHT = {}


def read_early(step):
    return step._host.numpy()


def plan_in_capture(graph):
    graph.prepare(_scratch_plan(len(graph._token_ids), graph._kv))
    return graph._model.forward(graph._token_ids, graph._inputs, graph._planned, graph._kv.layers)


def new_inputs(graph, plan):
    """Inputs at other addresses than those that were recorded."""
    graph._planned = graph._attention.plan(plan)
    graph._inputs = plan_tensors(plan, graph._model.device)
    return graph._planned


def not_on_the_stream(stream, work):
    return work()


def look_at_tokens(logits, drawn):
    return logits.argmax(dim=-1) + 0 * int(logits.isnan().any())


def blocking_inputs(token_ids, token_slots, sample_slots, device):
    inputs = step_inputs(token_ids, token_slots, sample_slots, device)
    return replace(inputs, token_ids=torch.from_numpy(token_ids).to(device))


HAZARDS = {
    "pinned memory is written before": (FlashInferWrappers, "mark", lambda wrappers: NoMark()),
    "pinned memory is read before": (CudaStep, "result", read_early),
    "during the capture of a graph": (_DecodePass, "_forward", plan_in_capture),
    "_local_scalar_dense.* makes the host wait": (step_work, "sample", look_at_tokens),
    "a blocking copy makes the host wait": (executor, "step_inputs", blocking_inputs),
}


@pytest.mark.parametrize("message", HAZARDS)
def test_lazy_device_names_the_hazard(served, monkeypatch, message):
    """Plans that do not wait for their buffer, results taken early, waits that cost time."""
    monkeypatch.setattr(*HAZARDS[message])
    with pytest.raises(RuntimeError, match=message):
        served("llama", LazyGpu())


@pytest.mark.parametrize(
    ("owner", "name", "defect"),
    [
        (_DecodePass, "prepare", new_inputs),
        (CudaStream, "prepare", not_on_the_stream),
        (StreamHandle, "wait_stream", lambda stream, other: None),
    ],
)
def test_lazy_device_shows_what_a_quick_one_hides(served, monkeypatch, owner, name, defect):
    """Stale inputs, copies on another stream, and weights that nobody waits for."""
    graphs = name != "wait_stream"  # a capture waits for everything
    if graphs not in RIGHT:
        RIGHT[graphs] = served("llama", LazyGpu(), graphs=graphs)
    right = RIGHT[graphs]
    monkeypatch.setattr(owner, name, defect)
    hidden = name != "prepare" or owner is not _DecodePass
    assert (served("llama", LazyGpu(is_lazy=False), graphs=graphs) == right) is hidden
    # Unwritten memory may also make a kernel refuse its input.
    with suppress(ContractError, InvariantError, IndexError):
        assert served("llama", LazyGpu(), graphs=graphs) != right
