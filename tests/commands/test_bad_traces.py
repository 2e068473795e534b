"""A trace with a fault ends a run in one line; tests/workload tests every kind of fault."""

import gzip
from pathlib import Path

PATH = Path("trace.jsonl")


def test_run_trace_with_a_bad_row_names_line_and_field(refused, trace_scenario):
    """Blank lines count."""
    first, second, third = trace_scenario
    second = second.replace('"output_length": 9', '"output_length": "9"')
    PATH.write_text(f"\n{first}\n{second}\n{third}", encoding="utf-8")
    assert refused("study.yaml") == 'trace.jsonl:3: output_length: "9" is not a whole number'


def test_run_trace_that_cannot_be_read_whole_is_named(refused, trace_scenario):
    """Cut off in its compressed data, then not there at all."""
    PATH.write_bytes(gzip.compress(PATH.read_bytes())[:-9])
    assert refused("study.yaml") == "trace.jsonl:4: gzip data are cut off or corrupt"
    PATH.unlink()
    assert refused("study.yaml") == "trace.jsonl: cannot be read: No such file or directory"
