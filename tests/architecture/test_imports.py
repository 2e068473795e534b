"""Import rules: those of .importlinter, and those that it cannot express."""

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import grimp
import pytest

REPOSITORY = Path(__file__).parents[2]
CORE = ("core", "kvcache", "scheduler", "engine")
# mypy_extensions marks classes for the compiler, and does nothing.
LIBRARIES_OF_CORE = {"numpy", "mypy_extensions"}
# With these modules a decision could depend on the clock, on chance or on thread timing.
UNFIT_FOR_CORE = {
    "asyncio",
    "concurrent",
    "datetime",
    "importlib",
    "logging",
    "multiprocessing",
    "random",
    "secrets",
    "threading",
    "time",
}
HEAVY = {"flashinfer", "matplotlib", "pandas", "pyarrow", "scipy", "torch", "transformers"}
HEAVY |= {"aiconfigurator_core", "optuna"}
LIGHT = ["sim", "servetwin", "sim.runlog", "sim.latency.config", "sim.workload.workload"]
LIGHT += ["calibrate.cli", "realrun.cli", *(["sim.cli"] if find_spec("sim.cli") else [])]


def imported_modules(path):
    """Every module named by an import statement, at any depth of the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def run_python(*arguments):
    return subprocess.run(
        [sys.executable, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )


def test_imports_whole_project_keeps_its_contracts():
    """`lint-imports` finds every contract of .importlinter kept."""
    code = "from importlinter.cli import lint_imports; import sys; sys.exit(lint_imports("
    done = run_python("-c", code + "no_cache=True))")
    assert done.returncode == 0, done.stdout + done.stderr


def import_circles(graph):
    """Groups of modules that import each other, directly or in a ring (Tarjan's algorithm)."""
    numbers, lowest, stack, circles = {}, {}, [], []

    def visit(module):
        numbers[module] = lowest[module] = len(numbers)
        stack.append(module)
        for imported in sorted(graph.find_modules_directly_imported_by(module)):
            if imported not in numbers:
                visit(imported)
            if imported in stack:
                lowest[module] = min(lowest[module], lowest[imported])
        if lowest[module] == numbers[module]:
            start = stack.index(module)
            circle, stack[start:] = stack[start:], []
            if len(circle) > 1:
                circles.append(sorted(circle))

    for module in sorted(graph.modules):
        if module not in numbers:
            visit(module)
    return circles


def test_imports_go_in_no_circle():
    """Not even in imports for types alone: each module can be read after those it imports."""
    graph = grimp.build_graph("sim", "servetwin", "calibrate", "realrun", cache_dir=None)
    assert import_circles(graph) == []
    graph.add_import(importer="sim.core.errors", imported="sim.core.files")
    assert import_circles(graph) == [["sim.core.errors", "sim.core.files"]]


@pytest.mark.parametrize("package", CORE)
def test_imports_core_packages_use_numpy_and_the_standard_library(package):
    """Nothing else, also inside functions: no clock, no randomness, no threads, no logging."""
    below = {f"sim.{name}" for name in CORE[: CORE.index(package) + 1]}
    for path in sorted((REPOSITORY / "sim" / package).rglob("*.py")):
        for module in imported_modules(path):
            top = module.partition(".")[0]
            if top == "sim":
                assert ".".join(module.split(".")[:2]) in below, f"{path}: {module}"
            else:
                assert top in LIBRARIES_OF_CORE | sys.stdlib_module_names, f"{path}: {module}"
                assert top not in UNFIT_FOR_CORE, f"{path}: {module}"
                assert not module.startswith("numpy.random"), f"{path}: {module}"


@pytest.mark.parametrize("module", LIGHT)
def test_imports_light_module_loads_no_heavy_library(module):
    """Plots, tables and tensors are loaded by what needs them, when it runs."""
    done = run_python("-c", f"import {module}, sys; print(*sys.modules, sep='\\n')")
    assert done.returncode == 0, done.stderr
    loaded = {module.partition(".")[0] for module in done.stdout.split()}
    assert "sys" in loaded
    assert not loaded & HEAVY
