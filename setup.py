"""Compiles the hot modules into a wheel, if that can be done (docs/how-to/compiled.md).

All else about the package is in pyproject.toml.
"""

import shutil
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))

from sim.compiled.build import up_to_date_build  # noqa: E402 - the path comes first
from sim.compiled.finder import BUILDS, FAILED, Build  # noqa: E402


class CompiledDistribution(Distribution):
    """Makes wheels for one version of Python and one system."""

    def has_ext_modules(self) -> bool:
        return True


def command_that_adds(build: Build | None) -> type[build_py]:
    """A build of the package that has this one of its hot modules, or says why there is none."""

    class BuildPackage(build_py):
        def run(self) -> None:
            super().run()
            there = Path(self.build_lib, BUILDS.relative_to(ROOT))
            shutil.rmtree(there, ignore_errors=True)
            if build is not None:
                folder = build.library.parent
                shutil.copytree(folder, there / folder.name)
            elif FAILED.exists():
                there.mkdir()
                shutil.copy(FAILED, there)

    return BuildPackage


def main() -> None:
    """Set up; only a wheel is compiled, a clone is by `make compiled`."""
    if "bdist_wheel" not in sys.argv:
        setup()
        return
    build = up_to_date_build()
    kind = Distribution if build is None else CompiledDistribution
    setup(distclass=kind, cmdclass={"build_py": command_that_adds(build)})


if __name__ == "__main__":
    main()
