"""What is common to all traces: files, compression, limits, speeds, and broken text."""

import gzip
import json

import pytest

from sim.core.errors import InputError

ROWS = [{"timestamp": t, "input_length": 5, "output_length": 10, "hash_ids": [t]} for t in range(6)]
TEXT = "".join(f"{json.dumps(row)}\n" for row in ROWS).encode()


def test_trace_packed_plain_or_with_a_mark_reads_the_same(trace, facts):
    """Known by its first bytes, not by its name; two packed files in a row are one."""
    expected = facts(trace("mooncake", TEXT))
    middle = TEXT.index(b'{"timestamp": 3')
    packed_twice = gzip.compress(TEXT[:middle]) + gzip.compress(TEXT[middle:])
    for data in (gzip.compress(TEXT), packed_twice, b"\xef\xbb\xbf" + TEXT, TEXT.rstrip()):
        assert facts(trace("mooncake", data)) == expected


def test_trace_blank_lines_and_crlf_change_nothing(trace, facts):
    """They are left out of the row numbers."""
    spaced = b"\r\n" + TEXT.replace(b"\n", b"\r\n  \r\n")
    assert facts(trace("mooncake", spaced)) == facts(trace("mooncake", TEXT))


def test_trace_limit_keeps_the_first_rows(trace, facts):
    """A limit above the number of rows is no fault; what is beyond it is not looked at."""
    everything = facts(trace("mooncake", TEXT))[0]
    for limit in (1, 5, 6, 1000):
        assert facts(trace("mooncake", TEXT, limit=limit))[0] == everything[:limit]
    assert trace("mooncake", TEXT + b"{broken", limit=6).num_requests == 6


@pytest.mark.parametrize("scale", [0.25, 0.1, 3.0, 1e-6])
def test_trace_time_scale_multiplies_arrivals(trace, scale):
    """A quarter is four times as fast."""
    scaled = trace("mooncake", TEXT, time_scale=scale).arrivals()
    assert [r.spec.arrival_ns for r in scaled] == [round(t * 1e6 * scale) for t in range(6)]


def test_trace_time_scale_out_of_the_clocks_range_is_refused(error_of):
    """Times beyond the clock are refused."""
    rows = [ROWS[0], ROWS[1] | {"timestamp": 10**12}]
    assert error_of("mooncake", rows, time_scale=1000.0) == (
        "workload.time_scale: moves the last arrival out of the clock's range"
    )


@pytest.mark.parametrize(("limit", "expected"), [(None, 10), (4096, 4096), ({"factor": 1.5}, 15)])
def test_trace_limit_of_new_tokens_can_be_set(trace, limit, expected):
    """The output's own length, a number, or a factor of it."""
    workload = trace("mooncake", TEXT, max_new_tokens=limit)
    assert {request.spec.max_new_tokens for request in workload.arrivals()} == {expected}


def test_trace_tenant_is_on_every_request(trace):
    """Also for a format without tenants."""
    workload = trace("mooncake", TEXT, tenant="chat")
    assert {request.spec.tenant for request in workload.arrivals()} == {"chat"}


BAD = {
    "nothing at all": (b"", "t: holds no requests"),
    "nothing, packed": (gzip.compress(b""), "t: holds no requests"),
    "blank lines alone": (b"\n \r\n", "t: holds no requests"),
    "a cut row": (
        TEXT[:-20],
        "t:6: malformed JSON: Expecting ',' delimiter at column 55",
    ),
    "two rows in one": (
        TEXT.replace(b"\n", b" ", 1),
        "t:1: malformed JSON: Extra data at column 75",
    ),
    "a list": (b"[1]\n", "t:1: not a JSON object"),
    "a field twice": (
        TEXT.replace(b'{"timestamp": 2', b'{"timestamp": 1, "timestamp": 2'),
        't:3: "timestamp": occurs twice',
    ),
    "not UTF-8": (
        TEXT.replace(b'"timestamp": 4', b'"\xfftimestamp": 4'),
        "t:5: byte 3 is not UTF-8",
    ),
    "deep nesting": (b"[" * 100_000, "t:1: malformed JSON: nested too deep"),
    "an endless number": (
        TEXT.replace(b'"timestamp": 1', b'"timestamp": ' + b"1" * 5000),
        "t:2: malformed JSON: a number is too long or too large",
    ),
    "a huge exponent": (
        TEXT.replace(b'"timestamp": 1', b'"timestamp": 1e99999999999999999999'),
        "t:2: malformed JSON: a number is too long or too large",
    ),
    "packed and cut": (gzip.compress(TEXT)[:-9], "t:7: gzip data are cut off or corrupt"),
    "packed and cut at once": (gzip.compress(TEXT)[:5], "t:1: gzip data are cut off or corrupt"),
    "packed with a wrong sum": (
        gzip.compress(TEXT)[:-8] + bytes(8),
        "t:7: gzip data are cut off or corrupt",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_trace_file_that_is_broken_names_its_line(error_of, name):
    """One line with file, line and reason."""
    data, line = BAD[name]
    assert error_of("mooncake", data) == line


@pytest.mark.parametrize("format_", ["mooncake", "azure", "servetwin", "autobench"])
def test_trace_that_cannot_be_opened_is_named(build, tmp_path, format_):
    """A missing file, a folder, an impossible name; in every format."""
    section = {"kind": "trace", "format": format_}
    for name, reason in (
        ("absent.gz", "cannot be read: No such file or directory"),
        (".", "is a folder, not a file"),
        ("a\0b", "cannot be read: embedded null byte"),
    ):
        with pytest.raises(InputError) as caught:
            build(section | {"path": name})
        assert str(caught.value) == f"{tmp_path / name}: {reason}"


@pytest.mark.parametrize("format_", ["mooncake", "azure", "servetwin", "autobench"])
def test_trace_of_nothing_is_refused_in_every_format(error_of, format_):
    """A file without requests is a mistake in every format."""
    assert error_of(format_, b"") == "t: holds no requests"
