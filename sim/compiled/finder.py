"""Imports compiled modules in place of their sources, as long as these are what was compiled.

The modules of a build are in one shared library and call each other directly, so either all of them
are used or none. When the first of them is imported, every source is compared with what the build
was made from; that takes 3 ms.

A build is a folder with a shared library and the file `sources`. The first line of this file says
how the build was made, for `sim.compiled.build`. Each other line names a source: the hash of its
content, `compiled` or `read` (read for its types and constants), and its path from the root, which
is the folder that holds `sim`.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec, source_hash
from pathlib import Path
from types import ModuleType
from typing import Any

# The extension modules in a shared library: one with all compiled modules, and that of `start.c`,
# which starts one of these.
LIBRARY, STARTER = "servetwin__mypyc", "servetwin_start"
ROOT = Path(__file__).parents[2]
_ROOT = str(ROOT)
BUILDS = Path(__file__).with_name("builds")
# The file that says why the last attempt to make a build failed.
FAILED = BUILDS / "failed"
_SOURCES = "sources"


class Build:
    """A build that exists.

    Attributes:
        library: its shared library, which fits this Python's version and system.
        made_with: how it was made.
        compiled: paths of the sources of the compiled modules, from the root.
        modules: full names of the compiled modules.
    """

    def __init__(self, folder: Path) -> None:
        """Read what a build was made from.

        Raises:
            OSError: there is no build in the folder.
            ValueError: the list of its sources is damaged.
        """
        self.library = library_in(folder)
        self.made_with, *lines = (folder / _SOURCES).read_text(encoding="utf-8").splitlines()
        self._sources = [line.split(" ", 2) for line in lines]
        self.compiled = {path for _, use, path in self._sources if use == "compiled"}
        self.modules = frozenset(map(module_name, self.compiled))

    def changed_source(self) -> str | None:
        """The first source that has changed since the build was made; None: none has."""
        return next((path for known, _, path in self._sources if hash_of(path) != known), None)


def found_builds() -> list[Build]:
    """Builds for this Python, the newest first."""
    try:
        libraries = BUILDS.glob(f"*/{LIBRARY}{EXTENSION_SUFFIXES[0]}")
        newest = sorted(libraries, key=lambda library: -library.stat().st_mtime_ns)
        return [Build(library.parent) for library in newest]
    except (OSError, ValueError):
        # A build is damaged, or is just being replaced.
        return []


def library_in(folder: Path) -> Path:
    """The path of the shared library of a build for this Python."""
    return folder / (LIBRARY + EXTENSION_SUFFIXES[0])


def module_name(path: str) -> str:
    """The full name of a module, given its path from the root."""
    return path.removesuffix(".py").replace("/", ".")


def why_none_was_made() -> str:
    """Why there is no build: the reason of the last attempt to make one, if that failed."""
    try:
        return FAILED.read_text(encoding="utf-8").strip()
    except OSError:
        return "nothing is compiled"


def hash_of(path: str) -> str:
    """The hash that Python itself uses to tell whether a source has changed; "" without a file.

    `path` is from the root. Each run reads hundreds of sources: making `Path` objects would take
    nearly half of the time, so `open` reads them.
    """
    try:
        with open(f"{_ROOT}/{path}", "rb", buffering=0) as source:  # noqa: PTH123
            return source_hash(source.read()).hex()
    except OSError:
        return ""


def write_sources(
    folder: Path, made_with: str, compiled: Iterable[str], read: Iterable[str]
) -> str:
    """List the sources of a build, given as paths from the root; returns the list."""
    used = [*((path, "compiled") for path in compiled), *((path, "read") for path in read)]
    lines = [made_with, *(f"{hash_of(path)} {use} {path}" for path, use in used)]
    text = "\n".join(lines) + "\n"
    (folder / _SOURCES).write_text(text, encoding="utf-8")
    return text


# With this environment variable, unless it is 0, the sources are used in any case.
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
