"""Results with one wrong value: they are read, or refused with one line."""

import json
from contextlib import suppress

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.commands.import_results import read_results, sniff
from sim.core.errors import InputError
from sim.workload.results.measured import in_order, measured_of, write_workload
from sim.workload.results.model import ReadOptions
from tests.support import client_results, result_files

SERVED = [
    result_files.ServedRequest(
        f"r{place}", place * 10**8, place * 10**8, place * 10**8 + 10**7, place * 10**8 + 10**9,
        prompt=tuple(range(5 + place)), answer=(1, 2, 3), max_new_tokens=9,
    )
    for place in range(3)
]  # fmt: skip
ODD = st.sampled_from(
    [None, True, -1, 0, 10**30, -(10**30), 1e308, 0.1, float("nan"), float("inf"), "", "x",
     "\ud800", [], [[]], [None], ["..."], {}, {"value": 1}, {"value": None, "unit": "ms"},
     {"type": "abort"}]
)  # fmt: skip
WRITERS = [
    result_files.vllm_bench,
    result_files.sglang_bench,
    result_files.aiperf,
    result_files.sglang_json_log,
    result_files.sglang_text_log,
    result_files.sglang_export,
    client_results.guidellm,
    client_results.genai_perf,
    client_results.inference_perf,
    client_results.llmperf,
    client_results.aibrix,
]
ANY_FILE = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], database=None
)


def places(value, path=()):
    """The paths of all values inside a value."""
    yield path
    parts = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    for key, part in parts:
        yield from places(part, (*path, key))


def replaced(value, path, new):
    """A copy with another value at a path, or with that value removed."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1 and new is ...:
        del copy[path[0]]
    else:
        copy[path[0]] = replaced(copy[path[0]], path[1:], new)
    return copy


def read_and_write(path, folder, format_=None):
    """Do what the command does. It may raise InputError, and nothing else."""
    with suppress(InputError):
        run = read_results(path, format_ or sniff(path), ReadOptions())
        requests, _ = in_order(run.requests, str(path))
        measured_of(requests)
        write_workload(requests, folder / "workload.jsonl")


@ANY_FILE
@given(st.sampled_from(WRITERS), st.data())
def test_any_value_may_be_wrong(tmp_path, write, data):
    """Any JSON value may be wrong; a line of text is damaged as text."""
    lines = write(SERVED).splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    start = lines[number].find("{")
    try:
        row = json.loads(lines[number][start:])
    except ValueError:
        at = data.draw(st.integers(0, len(lines[number])))
        lines[number] = lines[number][:at] + data.draw(st.sampled_from(["", "'", "(", "...", "]"]))
    else:
        path = data.draw(st.sampled_from(list(places(row))))
        wrong = replaced(row, path, data.draw(ODD | st.just(...)) if path else {})
        lines[number] = lines[number][:start] + json.dumps(wrong)
    file = tmp_path / "results"
    file.write_text("\n".join(lines), encoding="utf-8")
    read_and_write(file, tmp_path)


@ANY_FILE
@given(st.binary(max_size=40), st.integers(0, 10**6))
def test_any_byte_of_a_dump_may_be_wrong(tmp_path, noise, at):
    content = result_files.sglang_dump(SERVED)
    at %= len(content)
    file = tmp_path / "dump.pkl"
    file.write_bytes(content[:at] + noise + content[at + len(noise) :])
    read_and_write(file, tmp_path, "sglang-dump")


@ANY_FILE
@given(st.data())
def test_any_value_of_a_dump_may_be_wrong(tmp_path, data):
    entry = list(result_files.dump_entry(SERVED[0]))
    path = data.draw(st.sampled_from(list(places(entry))))
    wrong = replaced(entry, path, data.draw(ODD | st.just(...))) if path else data.draw(ODD)
    entries = [tuple(wrong) if isinstance(wrong, list) else wrong]
    file = tmp_path / "dump.pkl"
    file.write_bytes(result_files.sglang_dump_of(entries))
    read_and_write(file, tmp_path, "sglang-dump")
