"""The KV cache on the device: one tensor of pages for each layer."""

import torch
from torch import Tensor

from realrun.device.memory import GIB, free_bytes, pool_bytes
from realrun.model.paged_model import PagedModel
from sim.core.errors import InputError

MAX_PAGE_SIZE = 128


class SettingError(InputError):
    """A setting that the runner or its device does not support.

    `reason` is the message without the setting's name and value.
    """

    def __init__(self, setting: str, value: float, reason: str) -> None:
        super().__init__(f"{setting} {value}: {reason}")
        self.reason = reason


class KVTensors:
    """K and V of every page, in one tensor for each layer.

    Attributes:
        layers: for each layer a tensor [num_pages + 1, 2, page_size, num_kv_heads, head_dim]. In
            the second dimension K is index 0 and V is index 1.
        num_pages: pages that requests may use.
        page_size: tokens of a page.
        scratch_page: id of one further page, which padding rows read and write.
    """

    def __init__(self, model: PagedModel, *, num_pages: int, page_size: int) -> None:
        """Allocate the tensors, filled with zeros.

        Attention multiplies masked values by 0, which would not remove a NaN of unset memory.

        Raises:
            InputError: the page size is out of range, or the pages do not fit into the memory.
        """
        check_page_size(page_size)
        self.num_pages = num_pages
        self.page_size = page_size
        self.scratch_page = num_pages
        sizes = model.shape
        shape = (num_pages + 1, 2, page_size, sizes.num_kv_heads, sizes.head_dim)
        check_room(model, num_pages=num_pages, page_size=page_size)
        try:
            self.layers: list[Tensor] = [
                torch.zeros(shape, dtype=model.dtype, device=model.device)
                for _ in range(sizes.num_layers)
            ]
        except torch.OutOfMemoryError:
            raise _too_large(model, num_pages, page_size) from None


def check_page_size(page_size: int) -> None:
    """Raises InputError unless a page holds 1 to 128 tokens."""
    if not 1 <= page_size <= MAX_PAGE_SIZE:
        raise SettingError("page_size", page_size, f"the runner takes 1 to {MAX_PAGE_SIZE}")


def check_room(model: PagedModel, *, num_pages: int, page_size: int) -> None:
    """Raises InputError unless the pages and the scratch page fit on the model's device."""
    if (num_pages + 1) * page_bytes(model, page_size) > free_bytes(model.device):
        raise _too_large(model, num_pages, page_size)


def _too_large(model: PagedModel, num_pages: int, page_size: int) -> SettingError:
    num_bytes = (num_pages + 1) * page_bytes(model, page_size)
    return SettingError(
        "max_total_tokens",
        num_pages * page_size,
        f"their KV takes {num_bytes / GIB:.2f} GiB,"
        f" {model.device} has {free_bytes(model.device) / GIB:.2f} GiB free",
    )


def page_bytes(model: PagedModel, page_size: int) -> int:
    """Bytes of one page, summed over all layers."""
    shape = model.shape
    num_elements = 2 * shape.num_layers * page_size * shape.num_kv_heads * shape.head_dim
    return num_elements * model.dtype.itemsize


def num_pages_that_fit(model: PagedModel, page_size: int, mem_fraction_static: float) -> int:
    """Pages that fit on the device beside the weights, without the scratch page.

    Args:
        model: a loaded model.
        page_size: tokens of a page.
        mem_fraction_static: share of the device's memory for weights and KV cache together.

    Raises:
        InputError: the page size is out of range, or not even one page fits.
    """
    check_page_size(page_size)
    num_bytes = pool_bytes(model.device, mem_fraction_static)
    num_pages = num_bytes // page_bytes(model, page_size) - 1
    if num_pages < 1:
        raise SettingError(
            "mem_fraction_static",
            mem_fraction_static,
            f"leaves {num_bytes / GIB:.2f} GiB of {model.device} for the KV cache, not enough for"
            f" one page of {page_size} tokens",
        )
    return num_pages
