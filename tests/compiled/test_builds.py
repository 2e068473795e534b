"""Making a build of one module of a copy of the package, and when it is used."""

import os
import shutil
import subprocess
import sys

import pytest

from sim.compiled.finder import PURE, ROOT

# Neither imports numpy, whose types mypy reads for seconds.
MODULE = "sim/sglang/version_rules.py"
IMPORTED = "sim/core/declared.py"
WHICH = "from sim.sglang import version_rules; from sim.compiled.finder import why_pure; "
WHY_NOT = """
from sim.compiled.build import CannotCompileError, build_of_sources
try:
    build_of_sources()
except CannotCompileError as error:
    print(repr(error))
"""
PATTERNS = f'[tool.servetwin.build]\ncompiled = ["{MODULE}"]\ninterpreted = []\n'


def run(tree, *arguments, **env):
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        env=os.environ | {"PYTHONPATH": str(tree), PURE: "0", **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def why_pure(tree, **env):
    """Why the module is not the compiled one; "None" if it is."""
    code = WHICH + "print(why_pure()); print(version_rules.__file__.endswith('.py'))"
    reason, is_pure = run(tree, "-c", code, **env).stdout.splitlines()
    assert is_pure == str(reason != "None")
    return reason


def compile_again(tree, **env):
    """What is said."""
    return run(tree, "-m", "sim.compiled", **env).stderr.splitlines()


def copy_of_package(place):
    ignored = shutil.ignore_patterns("builds", "__pycache__")
    shutil.copytree(ROOT / "sim", place / "sim", ignore=ignored)
    (place / "pyproject.toml").write_text(PATTERNS, encoding="utf-8")
    return place


@pytest.fixture
def sources(tmp_path):
    return copy_of_package(tmp_path)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    tree = copy_of_package(tmp_path_factory.mktemp("compiled"))
    _, *failed = compile_again(tree)
    if failed and "NoCompilerError" in run(tree, "-c", WHY_NOT).stdout:
        pytest.skip(failed[0])
    assert failed == []
    return tree


def test_build_is_used_and_made_once(compiled):
    """The same sources are compiled once."""
    assert why_pure(compiled) == "None"
    assert compile_again(compiled) == []


def test_build_of_another_user_is_used(compiled):
    """Whose files cannot be changed."""
    code = "import os\ndef refuse(*_): raise PermissionError\nos.utime = refuse\n"
    code += "from sim.compiled.build import up_to_date_build; print(up_to_date_build() is None)"
    done = run(compiled, "-c", code)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_build_of_the_listed_modules_is_used_again(compiled):
    """Another list of modules needs another build; with the first list, the first is used.

    The other build is a newer copy that says that it has the other module: one takes time to make.
    """
    project, builds = compiled / "pyproject.toml", compiled / "sim/compiled/builds"
    (first,) = builds.glob("*/")
    project.write_text(PATTERNS.replace(MODULE, IMPORTED), encoding="utf-8")
    compiling, failed = compile_again(compiled, CC="/no/cc")
    assert "compiling" in compiling
    assert "no C compiler" in failed
    other = shutil.copytree(first, builds / "other", copy_function=shutil.copyfile)
    sources = (other / "sources").read_text(encoding="utf-8")
    for path, use, other_use in ((MODULE, "compiled", "read"), (IMPORTED, "read", "compiled")):
        sources = sources.replace(f" {use} {path}", f" {other_use} {path}")
    (other / "sources").write_text(sources, encoding="utf-8")
    assert compile_again(compiled) == []
    project.write_text(PATTERNS, encoding="utf-8")
    assert compile_again(compiled) == []
    assert why_pure(compiled) == "None"
    shutil.rmtree(other)


@pytest.mark.parametrize("path", [MODULE, IMPORTED])
def test_build_of_other_sources_is_not_used(compiled, path):
    """Of the module itself, or of one that it imports; the old text brings the build back."""
    file = compiled / path
    before = file.read_text(encoding="utf-8")
    file.write_text(before + "# edited\n", encoding="utf-8")
    assert why_pure(compiled) == f"{path} is not what was compiled"
    file.write_text(before, encoding="utf-8")
    assert why_pure(compiled) == "None"


def test_build_is_not_used_if_refused_or_damaged(compiled):
    """The variable keeps the sources; a library that cannot be loaded is said so."""
    assert why_pure(compiled, **{PURE: "1"}) == f"{PURE} is set"
    (library,) = compiled.glob("sim/compiled/builds/*/*.so")
    whole = library.read_bytes()
    library.write_bytes(b"no library")
    assert library.name in why_pure(compiled)
    library.write_bytes(whole)


@pytest.mark.parametrize(
    ("text", "env", "said"),
    [
        ("", {"CC": "/no/cc"}, "no C compiler /no/cc: No such file or directory"),
        ("def broken(:\n", {}, f"{MODULE}: invalid syntax"),
        ('NUMBER: int = "text"\n', {}, "Incompatible types in assignment"),
    ],
)
def test_what_cannot_be_compiled_runs_as_python(sources, text, env, said):
    """One line says why, and `--version` repeats it."""
    file = sources / MODULE
    before = file.read_text(encoding="utf-8")
    file.write_text(before + text, encoding="utf-8")
    *_, line = compile_again(sources, **env)
    assert line.startswith("servetwin: pure Python, several times slower: ")
    assert said in line
    file.write_text(before, encoding="utf-8")
    assert said in why_pure(sources)
    assert not list(sources.glob("sim/compiled/builds/*/"))
