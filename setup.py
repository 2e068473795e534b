"""Compiles the modules on a step's way to C where SERVETWIN_COMPILE=1 asks for it.

Otherwise there is nothing here to do, and the wheel is pure Python: docs/how-to/compiled.md.
"""

import os
import sys
import tomllib
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from setuptools import Extension, setup

ROOT = Path(__file__).parent
_ASKED = os.environ.get("SERVETWIN_COMPILE", "0") not in {"", "0"}
# pydantic knows rich, rich knows IPython, and so on to pandas: 2,000 files that are not needed.
_MYPY_CONFIG = """\
[mypy]
[mypy-rich.*]
follow_imports = skip
"""
_EDITABLE = {"develop", "editable_wheel"}


def settings() -> dict[str, Any]:
    """What pyproject.toml says."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def module_paths() -> list[str]:
    """Files to compile, sorted: those that match `compiled` and not `interpreted`."""
    patterns = settings()["tool"]["servetwin"]["build"]
    compiled, interpreted = (
        {str(path.relative_to(ROOT)) for pattern in patterns[which] for path in ROOT.glob(pattern)}
        for which in ("compiled", "interpreted")
    )
    return sorted(compiled - interpreted)


def extensions() -> list[Extension]:
    """One shared library of these modules, and a stub for each."""
    from mypyc.build import mypycify  # noqa: PLC0415 - only who compiles has it

    # Without the project's settings: its checks, and their plugins, are for developers.
    with NamedTemporaryFile("w", suffix=".ini", encoding="utf-8") as config:
        config.write(_MYPY_CONFIG)
        config.flush()
        options = [f"--config-file={config.name}", "--follow-imports=silent"]
        made: list[Extension] = mypycify(
            [*options, *module_paths()], opt_level="2", debug_level="0", group_name="servetwin"
        )
    for extension in made:
        # A fused multiply-add rounds once where Python rounds twice: other times on some machines.
        extension.extra_compile_args = [*extension.extra_compile_args, "-ffp-contract=off"]
    return made


def main() -> None:
    """Set up; what is not said here is in pyproject.toml."""
    if not _ASKED:
        setup()
        return
    if _EDITABLE & set(sys.argv):
        sys.exit("SERVETWIN_COMPILE: an editable install would go on running what was compiled")
    setup(
        # What pip installs to build with, in an environment of its own.
        setup_requires=settings()["project"]["optional-dependencies"]["compile"],
        ext_modules=extensions() if "bdist_wheel" in sys.argv else [],
    )


if __name__ == "__main__":
    main()
