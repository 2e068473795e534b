"""Makes an environment for an engine: its package without kernels, and what its scheduler calls."""

import subprocess
import sys
from pathlib import Path

from sim.core.errors import InputError, say
from sim.installed.process import child_environment

_REQUIREMENTS = Path(__file__).parent
ENGINES = ("sglang", "vllm")


def install_engine(package: str, folder: Path) -> str:
    """Install an engine into a new Python environment, with pip.

    Args:
        package: `vllm==0.33.0`, or `vllm@` and what pip installs: a folder, or the address of an
            archive or a repository; for SGLang the same.
        folder: the environment; it must not exist.

    Returns:
        The name of the engine.

    Raises:
        InputError: the package has another form, the folder exists, or pip refuses.
    """
    name, options, variables = _recipe(package)
    if folder.exists():
        raise InputError(f"{folder}: exists already")
    python = folder / "bin" / "python"
    say(f"{folder}: {name}'s requirements are installed, at least 1 GB")
    _run([sys.executable, "-m", "venv", str(folder)], what=f"{folder}: no environment")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "-r", str(_REQUIREMENTS / f"{name}.txt")], what=f"{name}'s requirements")
    say(f"{folder}: {package} is installed, without kernels")
    _run([*pip, "--no-deps", *options], what=package, variables=variables)
    return name


def _recipe(package: str) -> tuple[str, list[str], dict[str, str]]:
    """The engine, pip's options and arguments, and variables that leave out kernels."""
    for name in ENGINES:
        if not package.startswith((f"{name}==", f"{name}@")):
            continue
        source = package.removeprefix(f"{name}@").strip()
        if name == "sglang":
            return name, [source], {}
        options = ["--no-build-isolation", "--no-binary", name, source]
        variables = {"VLLM_TARGET_DEVICE": "empty"}
        if source == package:
            # Its archive has no repository that would say which version it is.
            variables["VLLM_VERSION_OVERRIDE"] = package.removeprefix(f"{name}==")
        return name, options, variables
    known = " or ".join(f"{name}==VERSION, {name}@FOLDER" for name in ENGINES)
    raise InputError(f"{package}: must be {known}")


def _run(command: list[str], *, what: str, variables: dict[str, str] | None = None) -> None:
    done = subprocess.run(  # noqa: S603 - the user's own choice
        command,
        env=child_environment() | (variables or {}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stderr.split("\n") if line.strip()]
        errors = [line for line in lines if "error" in line.lower()]
        raise InputError(f"{what}: {(errors or lines or ['pip failed'])[-1].strip()}")
