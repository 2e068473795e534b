"""Finds a device by name, and how much of its memory a KV cache may use."""

from pathlib import Path

import torch

from sim.core.errors import InputError

GIB = 2**30

# On a CPU the KV cache shares the memory with all other programs. 4 GiB are enough for any model
# that a CPU can serve in reasonable time.
_MAX_CPU_POOL_BYTES = 4 * GIB


def find_device(name: str) -> torch.device:
    """The device with a name like `cpu`, `cuda` or `cuda:1`.

    Raises:
        InputError: this machine has no such device.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device {name}: not one of cpu, cuda, cuda:N") from None
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type != "cuda":
        raise InputError(f"device {name}: not one of cpu, cuda, cuda:N")
    num_devices = torch.cuda.device_count()
    if not num_devices:
        raise InputError(f"device {name}: torch finds no CUDA device")
    index = torch.cuda.current_device() if device.index is None else device.index
    if index >= num_devices:
        raise InputError(f"device {name}: torch finds {num_devices} CUDA devices, counted from 0")
    return torch.device("cuda", index)


def free_bytes(device: torch.device) -> int:
    """Bytes that can be allocated on the device now."""
    if device.type == "cuda":
        # The driver does not count memory that torch keeps for later allocations as free.
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(device)[0])
    return available_ram_bytes()


def pool_bytes(device: torch.device, mem_fraction_static: float) -> int:
    """Bytes that a KV cache may take, so that weights and KV cache fill a share of the memory.

    Args:
        device: a device that already holds the weights.
        mem_fraction_static: the share. On a CPU it is a share of the memory that is still free,
            and the result is at most 4 GiB.
    """
    if device.type == "cuda":
        num_free_bytes = free_bytes(device)
        num_total_bytes = int(torch.cuda.mem_get_info(device)[1])
        in_use = num_total_bytes - num_free_bytes
        return max(0, int(num_total_bytes * mem_fraction_static) - in_use)
    return min(int(free_bytes(device) * mem_fraction_static), _MAX_CPU_POOL_BYTES)


def available_ram_bytes() -> int:
    """Linux's estimate of the memory that a new program could use without swapping."""
    for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        key, _, rest = line.partition(":")
        if key == "MemAvailable":
            return int(rest.split()[0]) * 1024
    raise InputError("/proc/meminfo: MemAvailable: missing")
