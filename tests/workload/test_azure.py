"""Azure traces and their quirks."""

import pytest

from sim.workload.traces.csv_traces import AZURE_HEADERS

HEADER = AZURE_HEADERS[0]
ROWS = (
    "2023-11-16 18:15:46.6805900,374,44",
    "2023-11-16 18:15:50.9951690,396,109",
    "2023-11-17 00:00:00.0000001,879,55",
)


def text(*rows, end="\r\n"):
    """As published: CRLF, and no newline after the last row."""
    return end.join((HEADER, *rows)).encode()


def test_azure_arrival_is_the_exact_offset_from_the_first_row(trace):
    """Seven fractional digits are hundreds of nanoseconds, over midnight too."""
    workload = trace("azure", text(*ROWS))
    times = [request.spec.arrival_ns for request in workload.arrivals()]
    assert times == [0, 4_314_579_000, 20_653_319_410_100]


def test_azure_last_row_without_a_newline_counts(trace):
    """Three rows, three requests, the last one's lengths whole."""
    requests = list(trace("azure", text(*ROWS)).arrivals())
    assert [(len(r.spec.prompt), r.script.num_tokens) for r in requests] == [
        *((374, 44), (396, 109), (879, 55)),
    ]


def test_azure_plain_line_ends_read_the_same(trace, facts):
    """LF or CRLF, with or without a last one."""
    expected = facts(trace("azure", text(*ROWS)))
    assert facts(trace("azure", text(*ROWS, end="\n"))) == expected
    assert facts(trace("azure", text(*ROWS) + b"\r\n\r\n")) == expected


def test_azure_requests_share_nothing(trace):
    """Nothing is known of their content."""
    requests = list(trace("azure", text(ROWS[0], ROWS[0])).arrivals())
    seeds = [r.spec.prompt.segments[0][0] for r in requests] + [r.script.seed for r in requests]
    assert len(set(seeds)) == 4


@pytest.mark.parametrize(
    ("fraction", "gap_ns"), [(".0000001", 100), (".000000001", 1), (".5", 500_000_000), ("", 0)]
)
def test_azure_fraction_may_have_up_to_nine_digits(trace, fraction, gap_ns):
    """Exact to the nanosecond."""
    rows = ("2023-11-16 18:15:46,1,1", f"2023-11-16 18:15:46{fraction},1,1")
    _, second = trace("azure", text(*rows)).arrivals()
    assert second.spec.arrival_ns == gap_ns


def test_azure_stamps_of_2024_have_a_time_zone(trace):
    """Zones may differ from row to row; a letter T may stand between day and time."""
    rows = (
        "2024-05-10 00:00:00.009930+00:00,2162,5",
        "2024-05-10T02:00:00.017335+02:00,2399,6",
        "2024-05-10 00:00:01Z,3,7",
    )
    times = [request.spec.arrival_ns for request in trace("azure", text(*rows)).arrivals()]
    assert times == [0, 7_405_000, 990_070_000]


def test_azure_multimodal_rows_count_their_tokens(trace):
    """The trace of 2025 has a column of images, which only a note tells of."""
    rows = (AZURE_HEADERS[1], "2024-10-15 00:00:00,2,900,120", "2024-10-15 00:00:01,0,30,4")
    workload = trace("azure", "\n".join(rows).encode())
    assert [len(r.spec.prompt) for r in workload.arrivals()] == [900, 30]
    assert workload.notes == ("1 requests have images: only their ContextTokens count",)


def test_azure_rows_without_tokens_are_left_out_and_counted(trace):
    """They ask for nothing that a server could do. Times still count from the first row."""
    rows = ("2023-11-16 18:15:46,0,44", "2023-11-16 18:15:47,3,0", "2023-11-16 18:15:48,3,4")
    workload = trace("azure", text(*rows))
    assert [r.spec.arrival_ns for r in workload.arrivals()] == [2_000_000_000]
    assert workload.notes == ("2 rows left out: no context tokens, or no generated tokens",)


STAMP = "2023-11-16 18:15:46.6805900"
BAD = [
    ("374,44", "2 fields, expected 3"),
    (f"{STAMP},374,44,5", "4 fields, expected 3"),
    (f"{STAMP},-3,44", "ContextTokens: -3 is below 0"),
    (f"{STAMP},10000001,44", "ContextTokens: 10000001 is above 10000000"),
    (f"{STAMP},374,4.5", 'GeneratedTokens: "4.5" is not a whole number'),
    (f"{STAMP},374,", 'GeneratedTokens: "" is not a whole number'),
    (f"{STAMP},nan,44", 'ContextTokens: "nan" is not a whole number'),
    ("16/11/2023 18:15,374,44", 'TIMESTAMP: "16/11/2023 18:15" is not YYYY-MM-DD HH:MM:SS.fffffff'),
    ("2023-13-16 18:15:46,374,44", 'TIMESTAMP: "2023-13-16 18:15:46": month must be in 1..12'),
    ("2023-11-16 18:15:46.6805899,374,44",
     "TIMESTAMP: is before the previous row's; rows must be in order of time"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_azure_bad_row_names_line_and_column(error_of, bad, reason):
    """The header is line 1."""
    assert error_of("azure", text(ROWS[0], bad)) == f"t:3: {reason}"


def test_azure_without_its_header_is_refused(error_of):
    """Columns in another order would be read as each other."""
    reason = "t:1: the header must be " + " or ".join(AZURE_HEADERS)
    assert error_of("azure", b"TIMESTAMP,GeneratedTokens,ContextTokens\r\n") == reason
    assert error_of("azure", f"{STAMP},1,1\r\n".encode()) == reason


def test_azure_with_a_header_alone_holds_no_requests(error_of):
    """Nothing to simulate is a mistake."""
    assert error_of("azure", text()) == "t: holds no requests"
