"""A trace with one fault: file, line and field in one line, and nothing written."""

import gzip
import json
from pathlib import Path

import pytest

PATH = Path("trace.jsonl")


def write(lines):
    PATH.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def with_fields(line, **fields):
    """The line's row with fields replaced, or left out where None."""
    row = {**json.loads(line), **fields}
    return json.dumps({key: value for key, value in row.items() if value is not None})


# (fields of the second row, the line on stderr)
FIELDS = [
    ({"output_length": None}, "trace.jsonl:2: output_length: missing"),
    ({"hash_ids": None}, "trace.jsonl:2: hash_ids: missing"),
    ({"input_length": 0}, "trace.jsonl:2: input_length: 0 is below 1"),
    ({"input_length": -4}, "trace.jsonl:2: input_length: -4 is below 1"),
    ({"input_length": 10**9}, "trace.jsonl:2: input_length: 1000000000 is above 10000000"),
    ({"output_length": "9"}, 'trace.jsonl:2: output_length: "9" is not a whole number'),
    ({"output_length": True}, "trace.jsonl:2: output_length: true is not a whole number"),
    ({"timestamp": float("nan")}, "trace.jsonl:2: timestamp: NaN is not a finite number"),
    ({"timestamp": -1}, "trace.jsonl:2: timestamp: -1 is below 0"),
    (
        {"hash_ids": [1]},
        "trace.jsonl:2: hash_ids: 1 ids, but input_length / 512 rounded up is 2",
    ),
]


@pytest.mark.parametrize(("fields", "line"), FIELDS, ids=[str(fields) for fields, _ in FIELDS])
def test_run_trace_row_with_a_bad_field_names_line_and_field(refused, trace_scenario, fields, line):
    """The second row is bad; the first and third are not blamed."""
    trace_scenario[1] = with_fields(trace_scenario[1], **fields)
    write(trace_scenario)
    assert refused("study.yaml") == line


def test_run_trace_that_goes_back_in_time_names_the_row(refused, trace_scenario):
    """Arrivals must be in order of time."""
    trace_scenario[2] = with_fields(trace_scenario[2], timestamp=39)
    write(trace_scenario)
    assert refused("study.yaml") == (
        "trace.jsonl:3: timestamp: is before the previous row's; rows must be in order of time"
    )


def test_run_trace_row_of_broken_json_names_the_line(refused, trace_scenario):
    """The line's number counts blank lines too."""
    write([trace_scenario[0], "", trace_scenario[1][:-1], trace_scenario[2]])
    assert refused("study.yaml").startswith("trace.jsonl:3: malformed JSON: ")


def test_run_trace_field_given_twice_is_refused(refused, trace_scenario):
    """JSON readers keep the last of two; we keep neither."""
    write([trace_scenario[0].replace("{", '{"timestamp": 7, ')])
    assert refused("study.yaml") == 'trace.jsonl:1: "timestamp": is there twice'


def test_run_trace_that_is_absent_is_named(refused, trace_scenario):
    """The path as the scenario leads to it."""
    PATH.unlink()
    assert refused("study.yaml") == "trace.jsonl: cannot be read: No such file or directory"


def test_run_trace_without_a_row_is_refused(refused, trace_scenario):
    """Nothing to simulate is a mistake, not an empty result."""
    write([""])
    assert refused("study.yaml") == "trace.jsonl: holds no requests"


def test_run_trace_that_is_not_text_names_the_line(refused, trace_scenario):
    """Bytes that are not UTF-8 on the third line."""
    PATH.write_bytes(PATH.read_bytes().replace(b'"timestamp": 90', b'"timestamp\xff": 90'))
    assert refused("study.yaml") == "trace.jsonl:3: byte 12 is not UTF-8"


@pytest.mark.parametrize("num_bytes_lost", [1, 9, 40])
def test_run_trace_cut_off_in_its_compressed_data_is_refused(
    refused, trace_scenario, num_bytes_lost
):
    """Not even the rows that could be read are used."""
    PATH.write_bytes(gzip.compress(PATH.read_bytes())[:-num_bytes_lost])
    line = refused("study.yaml")
    assert line.startswith("trace.jsonl:")
    assert line.endswith(": gzip data are cut off or corrupt")


def test_run_trace_packed_and_plain_give_the_same_results(simulate, trace_scenario):
    """The same fixture without a fault is served, whatever its name says."""
    plain = simulate("run", "study.yaml", "--decisions", "plain.jsonl")
    PATH.write_bytes(gzip.compress(PATH.read_bytes()))
    packed = simulate("run", "study.yaml", "--decisions", "packed.jsonl")
    assert (plain.code, packed.code) == (0, 0)
    assert Path("plain.jsonl").read_bytes() == Path("packed.jsonl").read_bytes()
