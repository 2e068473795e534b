"""A real vLLM 0.26.0 server on an H100, with faults that were planted (data/README.md)."""

import re

import pytest

from calibrate.explain.causes import explain
from calibrate.explain.logs import run_of_logs
from tests.support.vllm_server import MEASURED, write_as_run_log

FAULTS = "vllm-0.26-h100-llama-3.1-8b-faults"


def explained(folder, *recorded):
    runs = []
    for number, run in enumerate(recorded):
        path = folder / f"{number}.jsonl"
        write_as_run_log(run, path)
        runs.append(run_of_logs([path], MEASURED))
    return explain(*runs)


def test_a_process_that_was_stopped_three_times_is_found_to_the_second(tmp_path):
    found = explained(tmp_path, (FAULTS, "rate12"), (FAULTS, "stall"))
    first = found.causes[0]
    assert first.name == "stalls"
    after = first.detail.partition(" -> ")[2]
    assert re.findall(r"1\.00 s at (\S+) s", after) == ["3.1", "10.1", "16.1"]
    change_ms = found.after_ms["e2e_latency_ms"] - found.before_ms["e2e_latency_ms"]
    assert abs(found.unexplained_ms["e2e_latency_ms"]) < 0.1 * change_ms


@pytest.mark.long
def test_another_program_on_the_gpu_makes_steps_longer(tmp_path):
    found = explained(tmp_path, (FAULTS, "rate12"), (FAULTS, "neighbour"))
    assert [cause.name for cause in found.causes[:2]] == ["decode steps", "prefill steps"]
    assert found.causes[1].detail == "1.33 times as long (median)"
    change_ms = found.after_ms["e2e_latency_ms"] - found.before_ms["e2e_latency_ms"]
    assert abs(found.unexplained_ms["e2e_latency_ms"]) < 0.1 * change_ms
