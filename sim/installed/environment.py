"""The environment of an installed engine, which a scenario names: its Python, and its sources."""

import hashlib
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sim.core.errors import InputError
from sim.user.objects import ENGINE_KEY, FailAt

# Of the engine's package: what its scheduler is made of.
_SOURCES = {"vllm": ("v1",), "sglang": ("srt/managers", "srt/mem_cache")}
_KEY = ("scheduler", ENGINE_KEY)


class InstalledEngine(NamedTuple):
    """An engine that a scenario names.

    Attributes:
        package: the Python package of the engine.
        folder: its environment.
        fail_at: makes errors about keys of the scenario.
    """

    package: str
    folder: Path
    fail_at: FailAt

    @property
    def python(self) -> Path:
        return (self.folder / "bin" / "python").absolute()

    def error(self, reason: str) -> InputError:
        return self.fail_at(_KEY, reason)


def engine_in(
    package: str, folder: Path, fail_at: FailAt, refused: Sequence[str]
) -> InstalledEngine:
    """The engine in a folder.

    `refused` names what the server has and no installed engine is asked about.

    Raises:
        InputError: `refused` names something, or there is no Python.
    """
    if refused:
        raise not_asked(refused[0])
    engine = InstalledEngine(package, folder, fail_at)
    if not os.access(engine.python, os.X_OK):
        raise engine.error(f"{folder} is no Python environment: it has no bin/python")
    return engine


def not_asked(what: str) -> InputError:
    """The error about a part of servers that no installed engine is asked about."""
    return InputError(f"an installed engine is not asked about servers with {what}", key=_KEY)


@cache
def engine_hash(folder: Path) -> str:
    """SHA-256, in hex, of the source files of the schedulers in an environment.

    They are read at the first call. Files that are installed from elsewhere, such as a checkout,
    are not among them.
    """
    digest = hashlib.sha256()
    for package, parts in _SOURCES.items():
        for part in parts:
            for path in sorted(folder.glob(f"lib/python*/site-packages/{package}/{part}/**/*.py")):
                digest.update(f"{path.relative_to(folder)}\n".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()
