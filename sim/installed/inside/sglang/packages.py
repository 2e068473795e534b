"""Imports SGLang where there is no GPU. Call `import_sglang` before any module that uses SGLang."""

import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from sim.installed.inside.sglang.settings import DEFAULTS, environment

# Packages that SGLang imports and its scheduler does not need.
_FOR_ACCELERATORS = ("torchvision", "sgl_kernel")


def import_sglang() -> None:
    """Import SGLang's scheduler; stand in for packages that exist only for accelerators."""
    os.environ |= environment(DEFAULTS)
    warnings.filterwarnings("ignore")
    from transformers.utils import import_utils

    # transformers looks for torchvision once, and must not find the placeholder.
    import_utils.is_torchvision_available()
    missing = [name for name in _FOR_ACCELERATORS if importlib.util.find_spec(name) is None]
    sys.meta_path.append(_Placeholders(missing))
    import sglang.srt.managers.scheduler  # noqa: F401

    logging.disable(logging.CRITICAL)


class _Anything:
    """A class, a decorator, a function, a type: whatever its use needs."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __call__(self, *args: Any, **options: Any) -> Any:
        is_decorator = len(args) == 1 and not options and callable(args[0])
        return args[0] if is_decorator else _Anything()

    def __getattr__(self, name: str) -> Any:
        return _public(name)

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:
        return (object,)

    def __getitem__(self, _: Any) -> Any:
        return _Anything()

    def __or__(self, _: Any) -> Any:
        return self

    __ror__ = __or__


def _public(name: str) -> _Anything:
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(name)
    return _Anything()


class _PlaceholderModule(ModuleType):
    __path__: list[str] = []  # noqa: RUF012 - as Python's own modules have it

    def __getattr__(self, name: str) -> Any:
        return _public(name)


class _Placeholders(MetaPathFinder, Loader):
    """Finds the missing packages, and all that is below them."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = set(names)

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        is_missing = name.partition(".")[0] in self._names
        return ModuleSpec(name, self, is_package=True) if is_missing else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _PlaceholderModule(spec.name)

    def exec_module(self, module: ModuleType) -> None: ...
