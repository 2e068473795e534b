"""KV in CPU memory: copies between the pages of the device and chunks in the memory of the host."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from realrun.device.memory import GIB, available_ram_bytes
from realrun.device.streams import DeviceStream, SubmittedStep
from realrun.model.kv_tensors import KVTensors
from sim.core.errors import InputError
from sim.vllm.offload.copies import CopyJob
from sim.vllm.offload.host_memory import HostMemory
from sim.vllm.offload.policies import ChunkKey

# A copy goes through memory of the device, in which the chunks are as they are on the host. It is
# made in parts, so that this takes little memory.
_PART_BYTES = 128 << 20


class HostCopy(NamedTuple):
    """A copy that was submitted to the device's stream.

    Attributes:
        is_store: it is to CPU memory.
        num_bytes: of K and V.
        submitted: the copy in the stream, with its times.
    """

    is_store: bool
    num_bytes: int
    submitted: SubmittedStep


class HostCopies:
    """Makes the copies of one server, in the order in which they are decided.

    They run in the device's stream, behind the steps before and in front of the next one. The host
    reads no KV: when the scheduler finds a chunk, the copy to it may still be in the stream.
    """

    def __init__(
        self, kv: KVTensors, stream: DeviceStream, host: HostMemory, blocks_per_chunk: int
    ) -> None:
        """Allocate the memory of all chunks. `host` says which chunks are there.

        Raises:
            InputError: the host has less memory than they take.
        """
        self._kv = kv
        self._stream = stream
        self._host = host
        first = kv.layers[0]
        self._is_cuda = first.device.type == "cuda"
        # Of a chunk: all layers, and in each of them its pages.
        self._chunk_shape = (len(kv.layers), blocks_per_chunk, *first.shape[1:])
        self._page_bytes = len(kv.layers) * first[0].nbytes
        num_bytes = host.num_chunks * blocks_per_chunk * self._page_bytes
        if num_bytes > (free_bytes := available_ram_bytes()):
            raise InputError(
                f"KV in CPU memory takes {num_bytes / GIB:.2f} GiB,"
                f" and {free_bytes / GIB:.2f} GiB are free"
            )
        self._memory = torch.empty(
            (host.num_chunks, *self._chunk_shape), dtype=first.dtype, pin_memory=self._is_cuda
        )
        self._per_part = max(_PART_BYTES // (blocks_per_chunk * self._page_bytes), 1)
        # Where each chunk is; also chunks that have left, until their place is needed.
        self._places: dict[ChunkKey, int] = {}
        self._unused = list(range(host.num_chunks))
        self._made: list[HostCopy] = []

    def make(self, job: CopyJob) -> None:
        """Add a copy to the stream."""
        places = self._new_places(job) if job.is_store else [self._places[key] for key in job.keys]

        def copy() -> Tensor:
            # Made here, in the stream: memory of another one could be used again too early.
            blocks = torch.tensor(job.blocks, dtype=torch.int64, pin_memory=self._is_cuda)
            pages = blocks.to(self._kv.layers[0].device, non_blocking=True)
            for part_places, part_pages in self._parts(places, pages):
                if job.is_store:
                    self._store(part_places, part_pages)
                else:
                    self._load(part_places, part_pages)
            return pages

        num_bytes = len(job.blocks) * self._page_bytes
        self._made.append(HostCopy(job.is_store, num_bytes, self._stream.submit(copy)))

    def take_made(self) -> tuple[HostCopy, ...]:
        """The copies since the last call, in the order in which they are in the stream."""
        made, self._made = tuple(self._made), []
        return made

    def _parts(self, places: list[int], pages: Tensor) -> Iterator[tuple[list[int], Tensor]]:
        """Some places of chunks at a time, with their pages.

        Of a load, the first chunk may begin with pages that are there: `pages` lacks these.
        """
        per_part, per_chunk = self._per_part, self._chunk_shape[1]
        num_there = len(places) * per_chunk - len(pages)
        for begin in range(0, len(places), per_part):
            part = places[begin : begin + per_part]
            end_page = (begin + len(part)) * per_chunk - num_there
            yield part, pages[max(begin * per_chunk - num_there, 0) : end_page]

    def _store(self, places: list[int], pages: Tensor) -> None:
        layers = [
            layer[pages].view(len(places), *self._chunk_shape[1:]) for layer in self._kv.layers
        ]
        for place, chunk in zip(places, torch.stack(layers, dim=1), strict=True):
            self._memory[place].copy_(chunk, non_blocking=True)

    def _load(self, places: list[int], pages: Tensor) -> None:
        first = self._kv.layers[0]
        shape = (len(places), *self._chunk_shape)
        chunks = torch.empty(shape, dtype=first.dtype, device=first.device)
        for place, chunk in zip(places, chunks, strict=True):
            chunk.copy_(self._memory[place], non_blocking=True)
        for number, layer in enumerate(self._kv.layers):
            found = chunks[:, number].reshape(-1, *first.shape[1:])
            layer.index_copy_(0, pages, found[-len(pages) :])

    def _new_places(self, job: CopyJob) -> list[int]:
        """Places for the chunks of a store: unused ones, or those of chunks that have left."""
        for key in job.keys:
            if key in self._places:
                self._unused.append(self._places.pop(key))
        num_missing = len(job.keys) - len(self._unused)
        if num_missing > 0:
            left = (key for key in self._places if self._host.find(key) is None)
            self._unused += [self._places.pop(key) for key in list(islice(left, num_missing))]
        places = [self._unused.pop() for _ in job.keys]
        self._places.update(zip(job.keys, places, strict=True))
        return places
