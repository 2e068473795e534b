"""Number formats of weights, and published peak rates and memory of accelerators.

The sources of the peaks: docs/explanation/latency.md.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from sim.core.errors import InputError, unknown_name

Arithmetic = Literal["bf16", "fp8", "fp4"]


class NumberFormat(NamedTuple):
    """How the weights of some matrices are stored.

    Attributes:
        bits: of a weight, with its share of the scales.
        arithmetic: of the matrix product. Formats of weights alone are multiplied in 16 bits.
    """

    name: str
    bits: float
    arithmetic: Arithmetic


BFLOAT16 = NumberFormat("bfloat16", 16, "bf16")
FP8 = NumberFormat("fp8", 8, "fp8")
# One scale of 8 bits for 16 weights.
NVFP4 = NumberFormat("nvfp4", 4.5, "fp4")
# One scale of 8 bits for 32 weights.
MXFP8 = NumberFormat("mxfp8", 8.25, "fp8")
MXFP4 = NumberFormat("mxfp4", 4.25, "bf16")


def fp8_blocks(num_weights: int) -> NumberFormat:
    """Eight bits a weight, and a scale of 32 bits for each block of `num_weights` weights."""
    return NumberFormat("fp8_block", 8 + 32 / num_weights, "fp8")


def integers(bits: int, group_size: int | None, *, zero_points: bool) -> NumberFormat:
    """Weights alone as integers, in groups with a scale of 16 bits and perhaps a zero point.

    Without a `group_size`, a group is a whole column, whose scale is negligible. A zero point has
    as many bits as a weight.
    """
    of_group = 16 + (bits if zero_points else 0)
    added = 0.0 if group_size is None else of_group / group_size
    return NumberFormat(f"int{bits}", bits + added, "bf16")


_GIB = 2**30


class Hardware(NamedTuple):
    """One accelerator.

    Attributes:
        peak_flops_per_s: dense bf16 tensor-core peak with fp32 accumulation.
        memory_bytes: the memory without error-correcting codes, including what the driver takes.
        fp8_flops_per_s: dense fp8 peak; None: there is no such arithmetic.
        fp4_flops_per_s: dense fp4 peak; None: there is no such arithmetic.
        link_bytes_per_s: to other accelerators of the server, in one direction.
        board_w: the most that it may draw, as it is set when it is delivered.
        system: what the package aiconfigurator-core calls it; None: it does not know it.
    """

    name: str
    peak_flops_per_s: float
    peak_bytes_per_s: float
    memory_bytes: int
    fp8_flops_per_s: float | None
    fp4_flops_per_s: float | None
    link_bytes_per_s: float
    board_w: float
    system: str | None = None

    def flops_per_s(self, arithmetic: Arithmetic) -> float:
        """The peak of matrix products; weights are widened to 16 bits where it has no other."""
        peaks = {"fp8": self.fp8_flops_per_s, "fp4": self.fp4_flops_per_s}
        return peaks.get(arithmetic) or self.peak_flops_per_s


def _row(
    name: str,
    tflops: tuple[float, float | None, float | None],
    gb_per_s: float,
    memory_gib: float,
    link_gb_per_s: float,
    board_w: float,
    system: str | None = None,
) -> Hardware:
    """A row of the table; `tflops` are the dense peaks of bf16, fp8 and fp4."""
    bf16, *short = tflops
    fp8, fp4 = (None if peak is None else peak * 1e12 for peak in short)
    return Hardware(
        name=name,
        peak_flops_per_s=bf16 * 1e12,
        peak_bytes_per_s=gb_per_s * 1e9,
        memory_bytes=round(memory_gib * _GIB),
        fp8_flops_per_s=fp8,
        fp4_flops_per_s=fp4,
        link_bytes_per_s=link_gb_per_s * 1e9,
        board_w=board_w,
        system=system,
    )


# Data sheets often give peaks with sparsity; the dense ones are half of these.
HARDWARE: Mapping[str, Hardware] = {
    hardware.name: hardware
    for hardware in (
        _row("h200-sxm", (989, 1979, None), 4800, 141, 450, 700, "h200_sxm"),
        _row("h100-sxm", (989, 1979, None), 3350, 80, 450, 700, "h100_sxm"),
        _row("h100-pcie", (756, 1513, None), 2000, 80, 64, 350, "h100_pcie"),
        _row("h20", (148, 296, None), 4000, 96, 450, 400),
        _row("b200-sxm", (2250, 4500, 9000), 7700, 180, 900, 1000, "b200_sxm"),
        _row("b300-sxm", (2250, 4500, 13500), 7750, 268, 900, 1100, "b300_sxm"),
        _row("gb200", (2500, 5000, 10000), 8000, 186, 900, 1200, "gb200"),
        _row("gb300", (2500, 5000, 15000), 8000, 278, 900, 1400, "gb300"),
        _row("a100-80gb-sxm", (312, None, None), 2039, 80, 300, 400, "a100_sxm"),
        _row("a100-40gb-sxm", (312, None, None), 1555, 40, 300, 400),
        _row("l40s", (362.05, 733, None), 864, 45, 32, 350, "l40s"),
        _row("l4", (121, 242, None), 300, 22.5, 32, 72, "l4"),
        _row("a10", (125, None, None), 600, 22.5, 32, 150),
        _row("rtx-4090", (165.2, 330.3, None), 1008, 24, 32, 450),
        _row("mi300x", (1307.4, 2614.9, None), 5300, 192, 448, 750),
    )
}


def load_hardware(name: str) -> Hardware:
    if name not in HARDWARE:
        raise InputError(unknown_name("hardware", name, HARDWARE), key=("hardware",))
    return HARDWARE[name]


def gpu_named(name: str) -> Hardware | None:
    """The row of a GPU, by its name (`h100-sxm`, `h100_sxm`) or by its `latency.system`."""
    found = HARDWARE.get(name.replace("_", "-"))
    return found or next((row for row in HARDWARE.values() if row.system == name), None)


def check_system(hardware: Hardware, system: str) -> None:
    """Verify that a scenario's hardware is the GPU whose operators are asked for."""
    if hardware.system == system:
        return
    same = gpu_named(system)
    hint = "leave hardware out" if same is None else f"give hardware {same.name} or leave it out"
    reason = f"is {hardware.name}, but latency.system is {system}: {hint}"
    raise InputError(reason, key=("hardware",))
