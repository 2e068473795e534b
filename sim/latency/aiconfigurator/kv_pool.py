"""How much KV fits into a GPU, by the package's figures for its memory and for KV."""

from collections.abc import Sequence
from typing import NamedTuple

from sim.latency.aiconfigurator.deployment import ModelDeployment
from sim.latency.aiconfigurator.operators import PackageEngine
from sim.latency.aiconfigurator.package import memory_parts, open_engine
from sim.latency.config import Parallelism
from sim.latency.kv_memory import KvBytes, activation_bytes, stage_weight_bytes, weight_bytes_on_gpu
from sim.latency.shapes import ModelShape
from sim.latency.wrappers import SplitLayers

# Tokens of a short sequence: no sliding window is full yet.
_SHORT = 64


class GpuMemory(NamedTuple):
    """What is in a GPU's memory, and the KV that fits beside it.

    Attributes:
        pool_tokens: KV tokens of one rank; negative if even the weights do not fit.
        budget_bytes: for weights, KV and what the engine reserves before it sizes its pool.
        weights_bytes, reserved_bytes: what these weights and the engine take.
    """

    pool_tokens: int
    budget_bytes: float
    weights_bytes: float
    reserved_bytes: float


def memory_for_kv(
    deployment: ModelDeployment,
    memory_share: float,
    *,
    max_step_tokens: int,
    max_rows: int,
    split_layers: SplitLayers,
    shape: ModelShape | None = None,
    drafter: ModelShape | None = None,
) -> GpuMemory:
    """How many KV tokens fit beside what the package says the engine keeps in memory.

    SGLang sizes the pool before it reserves memory for activations, which must fit into the rest
    (`model_runner_kv_cache_mixin.py` of 0.5.9). vLLM measures the activations of the largest step
    first (`gpu_worker.py` of 0.19). The stage of a pipeline that fits the fewest tokens decides, as
    in both engines.

    `memory_share` of a GPU's memory is for weights and KV, as the engine's flag says. Each of the
    `max_rows` sequences has a state of its own in models with linear attention. The `shape` has the
    bytes of activations, and of weights in the checkpoint's own formats. Without it the package's
    estimates are taken. They count the first layers of some models as layers with experts, and for
    vLLM a workspace of TensorRT-LLM. A `drafter` is beside the model; pipelines have none.
    """
    engine = open_engine(deployment)
    parts = memory_parts(deployment, max_step_tokens=max_step_tokens, max_rows=max_rows)
    spread, reserved = deployment.parallelism, 0.0
    if deployment.backend != "sglang":
        reserved = parts["runtime_overhead_bytes"] + (
            parts["activations_bytes"]
            if shape is None
            else activation_bytes(shape, max_step_tokens, max_rows, spread.tp)
        )
    if {"gemm", "moe"} & dict(deployment.quantization).keys():
        shape = None
    budget = (parts["gpu_memory_capacity_bytes"] - parts["comm_overhead_bytes"]) * memory_share
    per_token, per_sequence = _kv_bytes(engine)
    kept = per_sequence * max_rows
    layers = split_layers(engine.num_layers, spread.pp)
    weights = _weights(engine, shape, spread, parts["weights_bytes"], layers)
    if drafter is not None:
        per_token += drafter.kv_bytes_on_gpu(spread.tp)
        weights = [each + weight_bytes_on_gpu(drafter, spread.tp, dp=spread.dp) for each in weights]
    memory_of_stages = []
    for in_weights, num_layers in zip(weights, layers, strict=True):
        # The package counts the KV of all layers.
        share = num_layers / engine.num_layers
        tokens = (budget - in_weights - reserved - kept * share) // (per_token * share)
        memory_of_stages.append(GpuMemory(int(tokens), budget, in_weights, reserved))
    return min(memory_of_stages, key=lambda memory: memory.pool_tokens)


def measured_kv_bytes(deployment: ModelDeployment) -> KvBytes:
    """The bytes of a request's KV on its way to a rank, as the package counts them.

    This is for models that no `ModelShape` describes. Bytes that do not grow with the length of a
    short prompt are those of states. The KV of a sliding window does grow with it, and so counts as
    if the window had no end.
    """
    tp = deployment.parallelism.tp
    per_token, per_sequence = _kv_bytes(open_engine(deployment))
    return KvBytes(round(per_token * tp), round(per_sequence * tp))


def _kv_bytes(engine: PackageEngine) -> tuple[float, float]:
    """What a GPU keeps of each token, and of each sequence however long."""
    first, short = (engine.model.get_kvcache_bytes_per_sequence(n) for n in (1, 1 + _SHORT))
    per_token = (short - first) / _SHORT
    return per_token, first - per_token


def _weights(
    engine: PackageEngine,
    shape: ModelShape | None,
    parallelism: Parallelism,
    estimated: float,
    layers: Sequence[int],
) -> Sequence[float]:
    """Bytes of weights on a GPU of each stage: by the shape, or the package's estimate.

    The package estimates an average stage.
    """
    tp, num_stages = parallelism.tp, len(layers)
    if num_stages == 1:
        own = estimated if shape is None else weight_bytes_on_gpu(shape, tp, dp=parallelism.dp)
        return [own]
    if shape is not None:
        return stage_weight_bytes(shape, tp, layers)
    embedding, head = (
        sum(op.get_weights() for op in engine.model.context_ops if name in op._name)
        for name in ("embedding", "logits")
    )
    of_layer = (estimated * num_stages - embedding - head) / engine.num_layers
    weights = [of_layer * num_layers for num_layers in layers]
    weights[0] += embedding
    weights[-1] += head
    return weights
