"""Which sources are compiled, and which others these take types and constants from."""

import ast
import tomllib
from collections.abc import Iterator

from sim.compiled.c_compiler import CannotCompileError
from sim.compiled.manifest import ROOT


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

    Raises:
        CannotCompileError: one of the sources is no Python.
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
