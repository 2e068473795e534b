"""Describes the machine that figures are measured on."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

from sim.compiled.finder import why_pure

LIBRARIES = ("numpy", "simpy", "pydantic")


def describe_machine() -> dict[str, str]:
    """The processor, cores, memory, system and versions, as texts by name."""
    return {
        "processor": _field(Path("/proc/cpuinfo"), "model name") or platform.processor(),
        "cores": str(os.cpu_count()),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
        "servetwin": "compiled" if why_pure() is None else "in pure Python",
    }


def machine_line(machine: dict[str, str]) -> str:
    """The description in one line."""
    of_machine = ("processor", "cores", "memory", "system")
    first = (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory']}, "
        f"{machine['system']}"
    )
    rest = [f"{name} {value}" for name, value in machine.items() if name not in of_machine]
    return f"{first}; {', '.join(rest)}"


def _memory() -> str:
    total = _field(Path("/proc/meminfo"), "MemTotal").removesuffix("kB").strip()
    return f"{int(total) / 2**20:.0f} GiB" if total else "memory unknown"


def _field(path: Path, name: str) -> str:
    """The value of the first line `name: value` in a file of Linux; empty on other systems."""
    if not path.exists():
        return ""
    for line in path.read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
