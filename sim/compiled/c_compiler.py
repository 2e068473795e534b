"""Runs the C compiler that Python's own extension modules are made with."""

import os
import subprocess
import sysconfig
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
    """gcc, clang, or what `CC` names; it compiles C files to one shared library."""

    def __init__(self, work: Path) -> None:
        """Find out how this Python's extension modules are compiled; object files go to `work`."""
        try:
            import_module("setuptools")  # with it, every Python has distutils
            from distutils.ccompiler import new_compiler  # noqa: PLC0415
            from distutils.sysconfig import customize_compiler  # noqa: PLC0415
        except ImportError as error:
            raise CannotCompileError(f"no setuptools: {error}") from None
        compiler: Any = new_compiler()
        if compiler.compiler_type != "unix":
            raise CannotCompileError(f"no gcc or clang, but {compiler.compiler_type}")
        customize_compiler(compiler)
        self._compile: list[str] = compiler.compiler_so
        self._link: list[str] = compiler.linker_so
        paths = sysconfig.get_paths()
        self._includes = {paths["include"], paths["platinclude"]}
        self._work = work

    def compile(
        self, sources: Iterable[str], includes: Sequence[str] = (), flags: Sequence[str] = ()
    ) -> list[str]:
        """Compile on all cores; returns the object files.

        Raises:
            CannotCompileError: there is no compiler, or it finds a mistake.
        """
        # The largest first, so that no core is left with one of them at the end.
        ordered = sorted(sources, key=lambda path: -Path(path).stat().st_size)
        objects = [str(self._work / f"{Path(source).stem}.o") for source in ordered]
        searched = [f"-I{folder}" for folder in (*includes, *self._includes)]
        how = [*self._compile, *searched, *flags, *_FLAGS, "-c"]
        commands = [
            [*how, source, "-o", made] for source, made in zip(ordered, objects, strict=True)
        ]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for _ in pool.map(_run, commands):
                pass
        return objects

    def link(self, objects: Sequence[str], library: Path) -> None:
        """Make the library.

        Raises:
            CannotCompileError: it fails.
        """
        _run([*self._link, *objects, "-o", str(library)])


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError as error:
        raise CannotCompileError(f"no C compiler {command[0]}: {error.strerror}") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        raise CannotCompileError((lines or [f"{command[0]}: exit code {done.returncode}"])[0])
