"""Published peak rates and memory of accelerators; their sources: docs/explanation/latency.md."""

from collections.abc import Mapping
from dataclasses import dataclass

from sim.core.errors import InputError
from sim.core.messages import unknown_name

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Hardware:
    """One accelerator.

    Attributes:
        name: its key in the table.
        peak_flops_per_s: dense bf16 tensor-core peak with fp32 accumulation.
        peak_bytes_per_s: memory bandwidth.
        memory_bytes: the whole memory, including what the driver takes.
    """

    name: str
    peak_flops_per_s: float
    peak_bytes_per_s: float
    memory_bytes: int


# Data sheets give Hopper's bf16 peak with sparsity (1,979 TFLOP/s); the dense one is half.
_TABLE: Mapping[str, Hardware] = {
    hardware.name: hardware
    for hardware in (
        Hardware("h200-sxm", 989e12, 4.8e12, 141 * _GIB),  # NVIDIA H200 data sheet
        Hardware("h100-sxm", 989e12, 3.35e12, 80 * _GIB),  # NVIDIA H100 data sheet, SXM5
        Hardware("a100-80gb-sxm", 312e12, 2.039e12, 80 * _GIB),  # NVIDIA A100 80GB data sheet
        # NVIDIA Ada architecture white paper, appendix A: 165.2 with fp32 accumulation.
        Hardware("rtx-4090", 165.2e12, 1.008e12, 24 * _GIB),
    )
}


def load_hardware(name: str) -> Hardware:
    """The accelerator of that name.

    Raises:
        InputError: unknown name; the message offers a similar one.
    """
    if name not in _TABLE:
        raise InputError(unknown_name("hardware", name, _TABLE), key=("hardware",))
    return _TABLE[name]
