"""KV in CPU memory: copies between the pages of the device and buffers of the host."""

import torch
from torch import Tensor

from realrun.device.streams import DeviceStream
from realrun.model.kv_tensors import KVTensors
from sim.vllm.offload.copies import Job
from sim.vllm.offload.host_memory import HostMemory
from sim.vllm.offload.policies import ChunkKey


class HostCopies:
    """Makes the copies of one server, in the order in which they are decided.

    They run in the device's stream, behind the steps before and in front of the next one.
    """

    def __init__(self, kv: KVTensors, stream: DeviceStream, host: HostMemory) -> None:
        """`host` says which chunks are there."""
        self._kv = kv
        self._stream = stream
        self._host = host
        # The pages of each chunk, one tensor for each layer; those of chunks that have left, too.
        self._chunks: dict[ChunkKey, list[Tensor]] = {}

    def make(self, job: Job) -> None:
        """Add a copy to the stream."""
        if job.is_store:
            self._store(job)
        else:
            self._load(job)

    def _store(self, job: Job) -> None:
        layers, pages = self._kv.layers, self._pages(job)
        per_chunk = len(job.blocks) // len(job.keys)
        buffers = [
            torch.empty(
                (len(job.blocks), *layer.shape[1:]),
                dtype=layer.dtype,
                pin_memory=layer.device.type == "cuda",
            )
            for layer in layers
        ]
        for place, key in enumerate(job.keys):
            chunk = slice(place * per_chunk, (place + 1) * per_chunk)
            self._chunks[key] = [buffer[chunk] for buffer in buffers]
        self._drop_evicted()

        def copy() -> Tensor:
            for buffer, layer in zip(buffers, layers, strict=True):
                buffer.copy_(layer[pages], non_blocking=True)
            return pages

        self._stream.submit(copy)

    def _load(self, job: Job) -> None:
        """The first chunk may begin with pages that are there."""
        layers, pages = self._kv.layers, self._pages(job)
        chunks = [self._chunks[key] for key in job.keys]

        def copy() -> Tensor:
            for layer, of_chunks in zip(layers, zip(*chunks, strict=True), strict=True):
                found = torch.cat(of_chunks)[-len(pages) :]
                layer.index_copy_(0, pages, found.to(layer.device, non_blocking=True))
            return pages

        self._stream.submit(copy)

    def _pages(self, job: Job) -> Tensor:
        return torch.tensor(job.blocks, dtype=torch.int64, device=self._kv.layers[0].device)

    def _drop_evicted(self) -> None:
        if len(self._chunks) > 2 * self._host.num_chunks:
            kept = [key for key in self._chunks if self._host.find(key) is not None]
            self._chunks = {key: self._chunks[key] for key in kept}
