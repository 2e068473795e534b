"""The compiled build (docs/how-to/compiled.md): what is compiled, and that it decides the same."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import sim
from sim.command_line import is_compiled

REPOSITORY = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "setup.py", "README.md", "sim", "calibrate", "realrun")


def load_setup():
    spec = spec_from_file_location("servetwin_setup", REPOSITORY / "setup.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SETUP = load_setup()
PATHS = SETUP.module_paths()
MODULES = [path.removesuffix(".py").replace("/", ".") for path in PATHS]


def compiler_missing():
    """What is missing for compiling; None if nothing is."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"no C compiler: {compiler}"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "no Python.h"
    return None


def build(place):
    """The simulator of a compiled wheel, unpacked."""
    source = place / "source"
    source.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copy
        copy(REPOSITORY / name, source / name)
    options = ("--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "-w", place, source],
        env=os.environ | {"SERVETWIN_COMPILE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    (wheel,) = place.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(place / "compiled")
    return place / "compiled"


def run_with(library, *arguments):
    """Python with the simulator at `library`; returns stdout."""
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        env=os.environ | {"PYTHONPATH": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def decision_logs(library, out, modules):
    """Everything that a simulator decides in a process of its own."""
    run_with(library, Path(__file__).with_name("decision_logs.py"), out, *modules)
    return out.read_text(encoding="utf-8")


def test_compiled_build_decides_the_same_to_the_byte(tmp_path):
    """All settings with three kinds of traffic, and the cases that SGLang decided."""
    if is_compiled():
        compiled = Path(sim.__file__).parents[1]
    elif reason := compiler_missing():
        pytest.skip(reason)
    else:
        compiled = build(tmp_path)
    assert run_with(compiled, "-m", "sim", "--version").endswith("(compiled)\n")
    theirs = decision_logs(compiled, tmp_path / "compiled.jsonl", MODULES)
    ours = decision_logs(REPOSITORY, tmp_path / "pure.jsonl", ())
    assert len(ours) > 1_000_000
    lines = zip(ours.splitlines(), theirs.splitlines(), strict=False)
    assert next(((a, b) for a, b in lines if a != b), None) is None
    assert ours == theirs


def test_compiled_modules_are_those_of_a_step():
    """The patterns of pyproject.toml find what they are for, and no module twice."""
    assert {
        "sim.des.server",
        "sim.sglang.scheduler.scheduler",
        "sim.sglang.cache.radix_cache",
    } <= set(MODULES)
    assert {"sim.vllm.scheduler.scheduler", "sim.vllm.cache.manager"} <= set(MODULES)
    assert len(set(MODULES)) == len(MODULES) > 40


@pytest.mark.parametrize("which", ["compiled", "interpreted"])
def test_compiled_patterns_all_name_files(which):
    """A module that was renamed does not drop out unseen."""
    patterns = SETUP.settings()["tool"]["servetwin"]["build"][which]
    unmatched = [pattern for pattern in patterns if not list(REPOSITORY.glob(pattern))]
    assert patterns
    assert not unmatched


def test_compiled_modules_leave_out_what_users_derive_from():
    """No interpreted class can be derived from a compiled one."""
    assert "sim.sglang.policies.policy" not in MODULES


def test_setup_that_compiles_refuses_an_editable_install():
    """Edited sources would go unused without a word."""
    done = subprocess.run(
        [sys.executable, "setup.py", "editable_wheel"],
        cwd=REPOSITORY,
        env=os.environ | {"SERVETWIN_COMPILE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("SERVETWIN_COMPILE: an editable install")
