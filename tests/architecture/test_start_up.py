"""A small run starts fast: it loads no module and starts no thread that it does not need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
# Other kinds of traffic and latency, the other family, other sections, errors; what draws pictures
# and tables, reads launch commands.
NOT_FOR_A_SMALL_RUN = {
    "rich",
    "pandas",
    "pyarrow",
    "matplotlib",
    "scipy",
    "torch",
    "optuna",
    "ray",
    "aiconfigurator_core",
    "multiprocessing",
    "numpy.ma",
    "tomllib",
    "sim.latency.aiconfigurator.model",
    "sim.latency.hosted",
    "sim.latency.layers",
    "sim.latency.architectures.model_key",
    "sim.latency.profile.format",
    "sim.latency.profile.model",
    "sim.latency.kinds.recorded",
    "sim.latency.kinds.roofline",
    "sim.latency.shapes",
    "sim.report.perfetto",
    "sim.report.run_folder",
    "sim.report.figures.run_logs",
    "sim.runlog.line_types",
    "sim.scenario.acceptance_section",
    "sim.scenario.autoscale_section",
    "sim.scenario.explain",
    "sim.scenario.report_section",
    "sim.scenario.search_sections",
    "sim.vllm.config",
    "sim.vllm.section.scheduler",
    "sim.workload.kinds.recorded",
    "sim.workload.traces.block_traces",
    "sim.workload.traces.files",
    "sim.workload.traces.rows",
}
RUN_AND_TELL = """
import os, sys
from sim.__main__ import main
sys.argv = ["simulate", "run", "scenarios/smoke.yaml"]
assert main() == 0
print("LOADED", *sys.modules)
print("BLAS", os.environ.get("OPENBLAS_NUM_THREADS"), os.environ.get("PYDANTIC_DISABLE_PLUGINS"))
tasks = "/proc/self/task"
print("THREADS", len(os.listdir(tasks)) if os.path.isdir(tasks) else 1)
"""
ASKED_ABOUT = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "PYDANTIC_DISABLE_PLUGINS")


def small_run(**settings):
    """The last lines that a small run in a new process prints, by their first word."""
    environment = {name: value for name, value in os.environ.items() if name not in ASKED_ABOUT}
    done = subprocess.run(
        [sys.executable, "-c", RUN_AND_TELL], cwd=REPOSITORY, env=environment | settings,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()[-3:]}


@pytest.fixture(scope="module")
def told():
    return small_run()


def test_small_run_loads_what_it_needs_only(told):
    """Synthetic traffic, a linear latency, a summary: no library and no module beyond that."""
    loaded = set(told["LOADED"])
    assert {
        "numpy",
        "simpy",
        "yaml",
        "sim.workload.kinds.synthetic",
        "sim.latency.kinds.linear",
    } <= loaded
    assert not loaded & NOT_FOR_A_SMALL_RUN


def test_small_run_starts_no_thread(told):
    """numpy's linear algebra would start one a core, and they would wait in a busy loop."""
    assert told["THREADS"] == ["1"]


def test_small_run_keeps_what_the_user_has_set():
    """Whoever says how many threads, or which plugins, is not overruled."""
    assert small_run(OMP_NUM_THREADS="2", PYDANTIC_DISABLE_PLUGINS="mine")["BLAS"] == [
        "None", "mine",
    ]  # fmt: skip
    assert small_run(OPENBLAS_NUM_THREADS="3")["BLAS"] == ["3", "__all__"]
