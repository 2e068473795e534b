"""Stand-ins for packages that vLLM imports at start, but its scheduler never calls."""

import sys
from collections.abc import Collection
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Needed by the model, the API server or the tokenizer, but not by the scheduler.
PLACEHOLDERS = frozenset((
    "aiohttp", "blake3", "cloudpickle", "cpuinfo", "cv2", "diskcache", "einops", "fastapi", "gguf",
    "huggingface_hub",
    "llguidance", "openai", "openai_harmony", "outlines_core", "PIL", "prometheus_client", "psutil",
    "pybase64", "requests", "safetensors", "scipy", "tokenizers", "tqdm", "transformers",
    "urllib3", "uvloop", "xgrammar", "partial_json_parser", "yaml", "starlette", "zmq",
))  # fmt: skip


class _Meta(type):
    """The metaclass of stand-in classes: their attributes are stand-in classes, too."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _inert(name)

    def __getitem__(cls, key: object) -> Any:
        return cls

    def __or__(cls, other: object) -> Any:
        return Any

    __ror__ = __or__


def _any_schema(*_arguments: object) -> Any:
    """Lets pydantic's models have fields of stand-in classes."""
    from pydantic_core import core_schema

    return core_schema.any_schema()


def _inert(name: str) -> Any:
    members = {"__module__": "placeholder", "__get_pydantic_core_schema__": _any_schema}
    return _Meta(name, (), members)


class _Placeholder(ModuleType):
    __version__ = "0"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _inert(name)


class _Finder(MetaPathFinder, Loader):
    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self._names:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Placeholder(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def install_placeholders(names: Collection[str] = PLACEHOLDERS) -> None:
    """Let those of these packages that are not installed be stand-ins from now on."""
    sys.meta_path.append(_Finder(names))
