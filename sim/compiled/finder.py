"""Imports compiled modules in place of their sources, as long as these are what was compiled.

The modules of a build are in one shared library and call each other directly, so either all of them
are used or none. When the first of them is imported, every source is compared with what the build
was made from; that takes 2 ms.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

from sim.compiled.manifest import LIBRARY, STARTER, Build, found_builds, why_none_was_made

PURE = "SERVETWIN_PURE"


class CompiledModules:
    """A finder for `sys.meta_path`, and the loader of the modules that it finds."""

    def __init__(self) -> None:
        self._builds: list[Build] | None = None
        self._modules: frozenset[str] = frozenset()
        self._library: ModuleType | None = None
        self._start: Any = None
        self._reason: str | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith("sim."):
            return None
        if self._builds is None:
            self._look_for_builds()
        if name not in self._modules or self.why_pure() is not None:
            return None
        loader: Any = self  # importlib.abc.Loader as a base takes 5 ms to import
        return ModuleSpec(name, loader, origin=getattr(self._library, "__file__", None))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Run the module's body: a compiled module does that as it is created."""
        capsule = getattr(self._library, "init_" + spec.name.replace(".", "___"))
        module: ModuleType = self._start(capsule)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing left to do."""

    def why_pure(self) -> str | None:
        """Why the sources are used; None if the compiled modules are."""
        if self._library is None and self._reason is None:
            self._choose()
        return self._reason

    def _look_for_builds(self) -> list[Build]:
        is_refused = os.environ.get(PURE, "") not in {"", "0"}
        self._reason = f"{PURE} is set" if is_refused else None
        self._builds = [] if is_refused else found_builds()
        self._modules = frozenset().union(*(build.modules for build in self._builds))
        return self._builds

    def _choose(self) -> None:
        """Load the newest build that fits; otherwise note why the newest does not."""
        reasons = []
        for build in self._builds if self._builds is not None else self._look_for_builds():
            changed = build.changed_source()
            if changed is not None:
                reasons.append(f"{changed} is not what was compiled")
                continue
            path = str(build.library)
            try:
                self._start = _loaded(STARTER, path).start
                self._library = _loaded(LIBRARY, path)
            except ImportError as error:
                reasons.append(str(error))
                continue
            self._modules = build.modules
            return
        if self._reason is None:
            self._reason = reasons[0] if reasons else why_none_was_made()


def _loaded(name: str, path: str) -> ModuleType:
    """One of the two extension modules of a library."""
    loader = ExtensionFileLoader(name, path)
    module = module_from_spec(ModuleSpec(name, loader, origin=path))
    module.__file__ = path
    sys.modules[name] = module
    loader.exec_module(module)
    return module


_compiled_modules = CompiledModules()


def install() -> None:
    """Let Python ask for compiled modules first."""
    if _compiled_modules not in sys.meta_path:
        sys.meta_path.insert(0, _compiled_modules)


def why_pure() -> str | None:
    """Why this process uses the sources; None if it uses the compiled modules."""
    return _compiled_modules.why_pure()
