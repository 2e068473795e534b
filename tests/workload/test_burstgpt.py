"""BurstGPT's two layouts."""

import pytest

from sim.workload.traces.csv_traces import BURSTGPT_HEADERS

ROWS = (
    "19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log",
    "19440161.5,d5983bf9,2,ChatGPT,36,0,36,Conversation log",
    "19440192.0,1722ac82,8,GPT-4,1779,123,1902,API log",
)


def text(*rows, header=BURSTGPT_HEADERS[1]):
    return "\n".join((header, *rows)).encode()


def test_burstgpt_reads_times_lengths_and_sessions(trace):
    """Failed requests have no response; times count from the first row."""
    workload = trace("burstgpt", text(*ROWS))
    facts = [
        (r.spec.arrival_ns, len(r.spec.prompt), r.script.num_tokens, r.spec.session)
        for r in workload.arrivals()
    ]
    assert facts == [(0, 906, 446, "1722ac82"), (82_000_000_000, 1779, 123, "1722ac82")]
    assert workload.notes == ("1 row left out: failed, with 0 tokens",)


def test_burstgpt_first_release_has_no_sessions(trace):
    """Release 1.1 has six columns."""
    row = "5,ChatGPT,472,18,490,Conversation log"
    (request,) = trace("burstgpt", text(row, header=BURSTGPT_HEADERS[0])).arrivals()
    assert (len(request.spec.prompt), request.spec.session) == (472, "")


BAD = [
    ("19440109,s,1,GPT-4,1,1,2,x",
     "Timestamp: is before the previous row's; rows must be in order of time"),
    ("x,s,1,GPT-4,1,1,2,x", 'Timestamp: "x" is not a finite number of seconds'),
    ("NaN,s,1,GPT-4,1,1,2,x", 'Timestamp: "NaN" is not a finite number of seconds'),
    ("1e99,s,1,GPT-4,1,1,2,x", 'Timestamp: "1e99" s is not a possible time'),
    ("19440110,s,1,GPT-4,many,1,2,x", 'Request tokens: "many" is not a whole number'),
    ("19440110,s,1,GPT-4,1,1", "6 fields, expected 8"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_burstgpt_bad_row_names_line_and_column(error_of, bad, reason):
    """The header is line 1."""
    assert error_of("burstgpt", text(ROWS[0], bad)) == f"t:3: {reason}"


def test_burstgpt_columns_in_another_order_are_refused(error_of):
    """They would be read as each other."""
    assert error_of("burstgpt", b"Timestamp,Request tokens\n").startswith("t:1: the header must be")
