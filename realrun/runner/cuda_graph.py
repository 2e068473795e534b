"""Captures CUDA graphs, and with them the decode passes of a model on a GPU."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from realrun.attention.flashinfer import GraphDecodeAttention
from realrun.attention.flashinfer_shape import attention_shape, workspace_bytes
from realrun.attention.flashinfer_wrappers import FlashInferWrappers
from realrun.model.kv_tensors import KVTensors
from realrun.model.paged_model import PagedModel
from realrun.runner.graphs import DecodeGraphs, graph_sizes, max_pages_of_rows
from sim.core.errors import InputError

# With more rows the kernels take longer than their launches, so a graph gains nothing.
_MAX_GRAPH_ROWS = 256

# In the first run kernels are loaded and libraries allocate workspaces, which a capture cannot
# record. The second run is like the capture.
_NUM_WARM_UPS = 2

# Torch has no type annotations for these.
_new_stream: Callable[..., Any] = torch.cuda.Stream
_new_graph: Callable[..., Any] = torch.cuda.CUDAGraph
_capturing: Callable[..., Any] = torch.cuda.graph


class CudaRecordedPass:
    """A captured CUDA graph and its output."""

    def __init__(self, graph: Any, output: Tensor) -> None:
        self._graph = graph
        self.output = output

    def replay(self) -> None:
        self._graph.replay()


class CudaPassRecorder:
    """Captures work as CUDA graphs that share one pool of memory.

    A graph may overwrite memory of another one, but not the outputs of graphs captured before it.
    So graphs must be replayed one after the other, and each output read before the next replay.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = _new_stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, work: Callable[[], Tensor]) -> CudaRecordedPass:
        """Warm up and capture on a separate stream, because the default one cannot be captured."""
        current = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(_NUM_WARM_UPS):
                work()
        current.wait_stream(self._stream)
        graph = _new_graph()
        with _capturing(graph, pool=self._pool, stream=self._stream):
            output = work()
        return CudaRecordedPass(graph, output)


def capture_decodes(model: PagedModel, kv: KVTensors, max_rows: int) -> DecodeGraphs:
    """Capture decode passes of up to `max_rows` rows, at most 256. The device must be idle.

    Raises:
        InputError: FlashInfer, the only attention that can be captured, does not support the
            model; or the graphs do not fit into the memory beside the KV cache.
    """
    max_rows = min(max_rows, _MAX_GRAPH_ROWS)
    try:
        return _capture_decodes(model, kv, max_rows)
    except torch.OutOfMemoryError:
        raise InputError(
            f"graphs of up to {max_rows} rows: no memory left on {model.device};"
            " use fewer KV tokens, or --no-graphs"
        ) from None


def _capture_decodes(model: PagedModel, kv: KVTensors, max_rows: int) -> DecodeGraphs:
    shape = attention_shape(model, kv)
    wrappers = FlashInferWrappers(shape)
    num_bytes = workspace_bytes(shape, num_sms=wrappers.num_sms(), num_graph_rows=max_rows)
    workspace = wrappers.workspace(num_bytes)
    num_indices = max_pages_of_rows(max_rows, model, kv)
    indices = torch.zeros(num_indices, dtype=torch.int32, device=model.device)

    def make_attention(num_rows: int) -> GraphDecodeAttention:
        return GraphDecodeAttention(
            shape, num_rows, wrappers=wrappers, workspace=workspace, indices=indices
        )

    graphs = DecodeGraphs(
        model,
        kv,
        sizes=graph_sizes(max_rows),
        make_attention=make_attention,
        recorder=CudaPassRecorder(model.device),
    )
    torch.cuda.synchronize(model.device)
    return graphs
