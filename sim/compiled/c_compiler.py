"""Runs the C compiler that Python's own extension modules are made with."""

import os
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

# Level 2 takes half as long again to compile, and what it makes is no faster.
OPT_LEVEL = "1"
# A fused multiply-add rounds once where Python rounds twice: other times on some machines.
# Functions that are seen inside the library alone are called directly. mypyc's C has warnings.
_FLAGS = ("-g0", "-ffp-contract=off", "-fvisibility=hidden", "-w")


class CannotCompileError(Exception):
    """Why something cannot be compiled, in one line."""


class CCompiler:
    """Compiles C files to one shared library."""

    def __init__(self, work: Path) -> None:
        """Find the compiler.

        Args:
            work: a folder for what it makes on the way.

        Raises:
            CannotCompileError: it has no setuptools to work with.
        """
        try:
            import_module("setuptools")  # with it, every Python has distutils
            from distutils.ccompiler import new_compiler  # noqa: PLC0415
            from distutils.sysconfig import customize_compiler, get_python_inc  # noqa: PLC0415
        except ImportError as error:
            raise CannotCompileError(f"no setuptools: {error}") from None
        self._work = str(work)
        self._include = get_python_inc()
        compiler: Any = new_compiler()
        customize_compiler(compiler)
        self._flags = _FLAGS if compiler.compiler_type == "unix" else ()
        if self._flags:
            compiler.spawn = _spawn
        self._compiler = compiler

    def compile(
        self, sources: Iterable[str], includes: Sequence[str] = (), flags: Sequence[str] = ()
    ) -> list[str]:
        """Compile on all cores; returns the object files.

        Raises:
            CannotCompileError: it does not work.
        """

        def compile_one(source: str) -> list[str]:
            made: list[str] = self._compiler.compile(
                [source],
                output_dir=self._work,
                include_dirs=[*includes, self._include],
                extra_postargs=[*flags, *self._flags],
            )
            return made

        # The largest first, so that no core is left with one of them at the end.
        ordered = sorted(sources, key=lambda path: -Path(path).stat().st_size)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return [path for made in pool.map(compile_one, ordered) for path in made]

    def link(self, objects: Sequence[str], library: Path, modules: Sequence[str]) -> None:
        """Make a library that has these extension modules."""
        exported = [f"PyInit_{module}" for module in modules]
        self._compiler.link_shared_object(objects, str(library), export_symbols=exported)


def _spawn(command: Iterable[str], **_: Any) -> None:
    words = [*command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError as error:
        raise CannotCompileError(f"no C compiler {words[0]}: {error.strerror}") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        raise CannotCompileError((lines or [f"{words[0]}: exit code {done.returncode}"])[0])
