"""A warm runner: a loaded model with KV tensors, attention, CUDA graphs and device stream."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from realrun.attention.choose import AttentionName, build_attention
from realrun.attention.reference import ReferenceAttention
from realrun.device.streams import CpuStream, DeviceStream
from realrun.model.fingerprint import fingerprint
from realrun.model.kv_tensors import KVTensors
from realrun.model.paged_model import PagedModel, load_model
from realrun.runner.graphs import RecordedDecodes
from realrun.runner.model_runner import ModelRunner
from realrun.runner.warm_up import warm_up

# A CPU has nothing to load or allocate for longer steps, and takes seconds for them.
_CPU_WARM_UP_TOKENS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerOptions:
    """How to run a model. None of these options changes a scheduling decision.

    Attributes:
        device: `cpu`, `cuda`, `cuda:N`, or `auto`: a GPU if there is one.
        dtype: `float32`, `bfloat16`, `float16`, or `auto`: bfloat16 on a GPU, float32 on a CPU.
        attention: the backend, see `build_attention`.
        graphs: replay decode steps as CUDA graphs if the device and the backend can.
        seed: seed of random weights.
    """

    device: str = "auto"
    dtype: str = "auto"
    attention: AttentionName = "auto"
    graphs: bool = True
    seed: int = 0

    @property
    def device_name(self) -> str:
        if self.device != "auto":
            return self.device
        return "cuda" if torch.cuda.is_available() else "cpu"

    @property
    def dtype_name(self) -> str:
        if self.dtype != "auto":
            return self.dtype
        return "bfloat16" if self.device_name.startswith("cuda") else "float32"


@dataclass(frozen=True, slots=True, eq=False)
class WarmRunner:
    """A model runner that has already run its first steps, and its device's stream.

    Attributes:
        runner: model, KV tensors and attention.
        stream: runs its steps.
        fingerprint: device, libraries and model.
    """

    runner: ModelRunner
    stream: DeviceStream
    fingerprint: dict[str, object]

    @property
    def graph_sizes(self) -> list[int]:
        """Row counts of the recorded decode passes, ascending."""
        graphs = self.runner.graphs
        return [] if graphs is None else list(graphs.sizes)


def load_with_options(
    name_or_path: str, options: RunnerOptions, base_dir: Path = Path()
) -> PagedModel:
    """Load a model on the device and in the dtype of the options.

    Raises:
        InputError: see `load_model`.
    """
    return load_model(
        name_or_path,
        device=options.device_name,
        dtype=options.dtype_name,
        seed=options.seed,
        base_dir=base_dir,
        use_flashinfer=options.attention != "reference",
    )


@contextmanager
def warm_runner(
    model: PagedModel,
    options: RunnerOptions,
    *,
    num_pages: int,
    page_size: int,
    max_rows: int,
    max_tokens: int = 512,
    cpu_threads: int | None = None,
) -> Iterator[WarmRunner]:
    """A context with a warm runner; it closes the device's stream at its end.

    Args:
        model: a loaded model.
        options: the options that it was loaded with.
        num_pages: pages that requests may use.
        page_size: tokens of a page.
        max_rows: largest number of rows of a decode step.
        max_tokens: largest number of new tokens of a step with prefill.
        cpu_threads: threads of a forward pass on a CPU. None: one for each core but one, which is
            left for the scheduler.

    Raises:
        InputError: the pages do not fit, or the attention backend does not support the model.
    """
    is_cuda = model.device.type == "cuda"
    if not is_cuda:
        torch.set_num_threads(cpu_threads or max((os.cpu_count() or 2) - 1, 1))
        max_tokens = min(max_tokens, _CPU_WARM_UP_TOKENS)
    kv = KVTensors(model, num_pages=num_pages, page_size=page_size)
    attention = build_attention(options.attention, model, kv, model.device)
    stream = _stream(model.device)
    try:
        uses_flashinfer = not isinstance(attention, ReferenceAttention)
        graphs = None
        if options.graphs and uses_flashinfer:
            graphs = _capture(model, kv, stream, max_rows)
        runner = ModelRunner(model, kv, attention, graphs=graphs)
        warm_up(runner, stream, max_rows=max_rows, max_tokens=max_tokens)
        name = options.attention
        if name == "auto":
            name = "flashinfer" if uses_flashinfer else "reference"
        yield WarmRunner(runner, stream, fingerprint(model, name))
    finally:
        stream.close()


def _capture(
    model: PagedModel, kv: KVTensors, stream: DeviceStream, max_rows: int
) -> RecordedDecodes:
    # Imported only for a GPU, because the module needs torch with CUDA.
    from realrun.runner.cuda_graph import capture_decodes

    return stream.prepare(lambda: capture_decodes(model, kv, max_rows))


def _stream(device: torch.device) -> DeviceStream:
    if device.type == "cuda":
        # Imported only for a GPU, because the module needs torch with CUDA.
        from realrun.device.cuda_stream import CudaStream

        return CudaStream(device)
    return CpuStream()
