"""Makes a build of the hot modules: mypyc makes C of them, and a C compiler a shared library.

The hot modules are those that every simulated step passes through. Nothing is made if a build of
the same sources exists. If it cannot be made, one line says why, and the sources run as they are.
"""

import ast
import atexit
import gc
import os
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout, suppress
from hashlib import sha256
from importlib import import_module
from io import StringIO
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

from sim.compiled.finder import (
    BUILDS,
    FAILED,
    LIBRARY,
    ROOT,
    Build,
    found_builds,
    library_in,
    write_sources,
)

# Level 2 takes half as long again to compile, and what it makes is no faster.
OPT_LEVEL = "1"
# A fused multiply-add rounds once where Python rounds twice: some machines would get other times.
# Functions that are seen inside the library alone are called directly. Warnings about mypyc's C are
# left out.
_FLAGS = ("-g0", "-ffp-contract=off", "-fvisibility=hidden", "-w")


class CannotCompileError(Exception):
    """Why something cannot be compiled, in one line."""


class NoCompilerError(CannotCompileError):
    """Nothing can be compiled here, whatever the sources are: a tool is not installed."""


class CCompiler:
    """gcc, clang, or what `CC` names; it compiles C files to one shared library."""

    def __init__(self, work: Path) -> None:
        """Find out how this Python's extension modules are compiled; object files go to `work`."""
        try:
            import_module("setuptools")  # with it, every Python has distutils
            from distutils.ccompiler import new_compiler  # noqa: PLC0415
            from distutils.sysconfig import customize_compiler  # noqa: PLC0415
        except ImportError as error:
            raise NoCompilerError(f"no setuptools: {error}") from None
        compiler: Any = new_compiler()
        if compiler.compiler_type != "unix":
            raise NoCompilerError(f"no gcc or clang, but {compiler.compiler_type}")
        customize_compiler(compiler)
        self._compile: list[str] = compiler.compiler_so
        self._link: list[str] = compiler.linker_so
        paths = sysconfig.get_paths()
        self._includes = {paths["include"], paths["platinclude"]}
        self._work = work

    def compile(
        self, sources: Iterable[str], includes: Sequence[str] = (), flags: Sequence[str] = ()
    ) -> list[str]:
        """Compile on all cores, in this order; returns the object files.

        Raises CannotCompileError: there is no compiler, or it finds a mistake.
        """
        ordered = [*sources]
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

        Raises CannotCompileError: it fails.
        """
        _run([*self._link, *objects, "-o", str(library)])


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError as error:
        raise NoCompilerError(f"no C compiler {command[0]}: {error.strerror}") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        raise CannotCompileError((lines or [f"{command[0]}: exit code {done.returncode}"])[0])


def compiled_paths() -> list[str]:
    """Sources that match `compiled` in pyproject.toml and do not match `interpreted`, sorted."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    compiled, interpreted = (
        {
            path.relative_to(ROOT).as_posix()
            for pattern in settings["tool"]["servetwin"]["build"][which]
            for path in ROOT.glob(pattern)
        }
        for which in ("compiled", "interpreted")
    )
    return sorted(compiled - interpreted)


def read_paths(compiled: list[str]) -> list[str]:
    """Sources that these import, directly or not: their types and constants are compiled in.

    Raises CannotCompileError: one of the sources is no Python.
    """
    seen, left = set(compiled), list(compiled)
    while left:
        path = left.pop()
        for name in _imported_names(_parsed(path)):
            for imported in _paths_of(name):
                if imported not in seen:
                    seen.add(imported)
                    left.append(imported)
    return sorted(seen - set(compiled))


def _parsed(path: str) -> ast.Module:
    try:
        return ast.parse((ROOT / path).read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise CannotCompileError(f"{path}: {error}") from None


def _imported_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _paths_of(name: str) -> Iterator[str]:
    """The files of a module of sim, and of its packages."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1) if parts[0] == "sim" else ():
        stem = "/".join(parts[:end])
        for path in (f"{stem}/__init__.py", f"{stem}.py"):
            if (ROOT / path).is_file():
                yield path


_KEPT_BUILDS = 3
# The project's own settings are for its developers' checks. Pydantic imports rich, rich imports
# IPython, and so on to pandas: 2,000 files that are not needed.
_MYPY_CONFIG = """\
[mypy]
follow_imports = silent
[mypy-rich.*]
follow_imports = skip
"""


def up_to_date_build() -> Build | None:
    """The build of the sources as they are, made if need be.

    Returns None if it cannot be made; a line on stderr says why, and so does the file `FAILED`.
    """
    try:
        build = build_of_sources()
    except (CannotCompileError, OSError) as error:
        sys.stderr.write(f"servetwin: pure Python, several times slower: {error}\n")
        with suppress(OSError):
            FAILED.write_text(f"{error}\n", encoding="utf-8")
        return None
    FAILED.unlink(missing_ok=True)
    return build


def build_of_sources() -> Build:
    """The build of the sources as they are, made if need be.

    Raises NoCompilerError: this machine lacks a tool; CannotCompileError: a source cannot be
    compiled; OSError: a file cannot be written.
    """
    build = _existing_build()
    if build is None:
        sys.stderr.write("servetwin: compiling the hot modules, about half a minute\n")
        build = _make_build()
    return build


def _existing_build() -> Build | None:
    made_with, compiled = _made_with(), {*compiled_paths()}
    for build in found_builds():
        fits = build.made_with == made_with and build.compiled == compiled
        if fits and build.changed_source() is None:
            # The finder takes the newest build that fits the sources, whichever modules it has. Now
            # this one is the newest. Another user's build can be used as it is.
            with suppress(OSError):
                os.utime(build.library)
            return build
    return None


def _make_build() -> Build:
    compiled = compiled_paths()
    BUILDS.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=BUILDS, prefix=".") as place:
        work = Path(place)
        made = work / "build"
        made.mkdir()
        listed = write_sources(made, _made_with(), compiled, read_paths(compiled))
        compiler = CCompiler(work)
        objects = _compile_start(compiler)
        written = _write_c(compiled, work)
        flags = [flag for flag in written.extra_compile_args if flag != "-Werror"]
        units = _in_units(written.sources, work)
        objects += compiler.compile(units, written.include_dirs, flags)
        compiler.link(objects, library_in(made))
        if changed := Build(made).changed_source():
            raise CannotCompileError(f"{changed} was changed meanwhile")
        key = sha256(f"{library_in(made).name}\n{listed}".encode()).hexdigest()[:16]
        rmtree(BUILDS / key, ignore_errors=True)
        made.rename(BUILDS / key)
    for old in found_builds()[_KEPT_BUILDS:]:
        rmtree(old.library.parent, ignore_errors=True)
    return Build(BUILDS / key)


def _compile_start(compiler: CCompiler) -> list[str]:
    """Compile what starts the library; it comes first, because without tools mypyc need not run."""
    try:
        return compiler.compile([str(Path(__file__).with_name("start.c"))])
    except CannotCompileError as error:
        raise NoCompilerError(str(error)) from None  # such as no Python.h


def _made_with() -> str:
    try:
        from mypy.version import __version__  # noqa: PLC0415 - only who compiles has it
    except ImportError as error:
        raise NoCompilerError(f"no mypy: {error}") from None
    how = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.[pc]*")))
    return f"mypy {__version__}, {sha256(how).hexdigest()[:16]}"


# Bytes of C in a unit, which is what the C compiler compiles at once. Each unit reads the same
# headers, which takes as long as compiling a small module. Units of this size are few enough that
# this hardly counts, and enough for 16 cores. Several modules can be one unit, because mypyc gives
# their C functions different names.
_UNIT_BYTES = 1_500_000


def _in_units(sources: Iterable[str], work: Path) -> list[str]:
    """Put the C of modules together in files of about one size; mypyc's own files stay alone."""
    units: list[Path] = []
    others: list[str] = []
    num_bytes = _UNIT_BYTES
    for source in map(Path, sources):
        if not source.name.startswith("__native"):
            others.append(str(source))
            continue
        if num_bytes >= _UNIT_BYTES:
            units.append(work / f"unit_{len(units)}.c")
            num_bytes = 0
        with units[-1].open("a", encoding="utf-8") as unit:
            unit.write(f'#include "{source.name}"\n')
        num_bytes += source.stat().st_size
    # The largest first, so that no core is left with one of them at the end.
    return [*map(str, units), *others]


def _write_c(compiled: list[str], work: Path) -> Any:
    """Let mypyc write C to `work`; returns setuptools' `Extension`, which lists the files."""
    from mypyc.build import mypycify  # noqa: PLC0415

    # mypy leaves millions of objects, which Python would look through at its end for 25 s.
    atexit.register(gc.freeze)
    config = work / "mypy.ini"
    config.write_text(_MYPY_CONFIG, encoding="utf-8")
    said = StringIO()
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        with redirect_stdout(said), redirect_stderr(said):
            return mypycify(
                [f"--config-file={config}", f"--cache-dir={os.devnull}", *compiled],
                opt_level=OPT_LEVEL,
                debug_level="0",
                multi_file=True,
                target_dir=str(work),
                group_name=LIBRARY.removesuffix("__mypyc"),
            )[0]
    except SystemExit as stop:
        said_lines = said.getvalue().splitlines()
        lines = [line for line in said_lines if "error:" in line or "Error:" in line]
        raise CannotCompileError((lines or [str(stop)])[0]) from None
    finally:
        os.chdir(before)
