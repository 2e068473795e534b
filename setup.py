"""Compiles the modules on a step's way to C where SERVETWIN_COMPILE=1 asks for it.

Otherwise there is nothing here to do, and the wheel is pure Python: docs/compiled.md.
"""

import os
import sys
import tomllib
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).parent
_ASKED = os.environ.get("SERVETWIN_COMPILE", "0") not in {"", "0"}
_EDITABLE = {"develop", "editable_wheel"}


def modules(compiled: list[str], interpreted: list[str]) -> list[str]:
    """Files that match `compiled` and not `interpreted`, sorted; paths from here."""

    def matches(patterns: list[str]) -> set[str]:
        return {str(path.relative_to(ROOT)) for glob in patterns for path in ROOT.glob(glob)}

    return sorted(matches(compiled) - matches(interpreted))


def extensions(paths: list[str]) -> list[Extension]:
    """One shared library of these modules, and a stub of each."""
    from mypyc.build import mypycify  # noqa: PLC0415 - needed by who compiles

    # Without the project's settings: its checks, and their plugins, are for developers.
    options = ["--config-file=", "--ignore-missing-imports", "--python-executable", sys.executable]
    made: list[Extension] = mypycify(
        [*options, *paths], opt_level="2", debug_level="0", group_name="servetwin"
    )
    for extension in made:
        # A multiplication and an addition made one would round once: other times than Python's.
        extension.extra_compile_args = [*extension.extra_compile_args, "-ffp-contract=off"]
    return made


def main() -> None:
    """Set up; what is not said here is in pyproject.toml."""
    if not _ASKED:
        setup()
        return
    if _EDITABLE & set(sys.argv):
        sys.exit("SERVETWIN_COMPILE: an editable install would go on running what was compiled")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    setup(
        # What pip installs to build with, in an environment of its own.
        setup_requires=settings["project"]["optional-dependencies"]["compile"],
        ext_modules=extensions(modules(**settings["tool"]["servetwin"]["build"]))
        if "bdist_wheel" in sys.argv
        else [],
    )


if __name__ == "__main__":
    main()
