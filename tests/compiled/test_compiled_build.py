"""The compiled build (docs/how-to/compiled.md): what is compiled, and that it decides the same."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sim.compiled.build import NoCompilerError, build_of_sources, compiled_paths, read_paths
from sim.compiled.finder import PURE, ROOT, module_name

PATHS = compiled_paths()


def decision_logs(out, which, pure, *modules):
    """Everything that the simulator decides in a process of its own."""
    script = Path(__file__).with_name("decision_logs.py")
    done = subprocess.run(
        [sys.executable, "-P", script, out, which, *modules],
        env=os.environ | {"PYTHONPATH": str(ROOT), PURE: pure},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out.read_text(encoding="utf-8")


@pytest.mark.time_limit(400)
@pytest.mark.parametrize("traffic", ["some", pytest.param("all", marks=pytest.mark.long)])
def test_compiled_build_decides_the_same_to_the_byte(tmp_path, traffic):
    """All settings, with one kind of traffic or three, and cases that the engines decided.

    A source that cannot be compiled is an error; only a machine without a compiler is excused.
    """
    try:
        build_of_sources()
    except NoCompilerError as error:
        pytest.skip(str(error))
    modules = map(module_name, PATHS)
    theirs = decision_logs(tmp_path / "compiled.jsonl", traffic, "0", *modules)
    ours = decision_logs(tmp_path / "pure.jsonl", traffic, "1")
    assert len(ours) > 1_000_000
    lines = zip(ours.splitlines(), theirs.splitlines(), strict=False)
    assert next(((a, b) for a, b in lines if a != b), None) is None
    assert ours == theirs


def test_compiled_modules_are_those_of_a_step():
    """The patterns of pyproject.toml find what they are for."""
    assert {"sim/des/replicas/one_server.py", "sim/sglang/scheduler/scheduler.py"} <= set(PATHS)
    assert {"sim/sglang/cache/manager.py", "sim/vllm/cache/block_pool.py"} <= set(PATHS)


def test_sources_that_compiled_ones_import_are_watched():
    """A constant of an interpreted module is compiled in: through packages and inside functions."""
    read = read_paths(PATHS)
    assert {"sim/core/errors.py", "sim/__init__.py", "sim/latency/model.py"} <= set(read)
    assert not set(read) & set(PATHS)
    assert "sim/report/page.py" not in read


@pytest.mark.parametrize("which", ["compiled", "interpreted"])
def test_compiled_patterns_all_name_files(which):
    """A module that was renamed does not drop out unseen."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["servetwin"]["build"][which]
    assert patterns
    assert not [pattern for pattern in patterns if not list(ROOT.glob(pattern))]
