"""Results of AIBrix: files of multi-round-qa.py, alone or several in one."""

import gzip

import pytest

from sim.commands.import_results import read_results, sniff
from sim.core.errors import InputError
from sim.workload.results.model import ReadOptions

HEADER = (
    "prompt_tokens,generation_tokens,ttft,generation_time,user_id,question_id,launch_time,"
    "finish_time"
)
# Rows of AIBrix v0.3.0, times cut to milliseconds: two users, one of whom asks twice.
ROWS = [
    "21073,100,2.974,1.254,321,1,1747711000.000,1747711004.228",
    "21073,100,0.062,1.254,179,1,1747711020.043,1747711021.359",
    "21202,100,0.077,1.255,321,2,1747711078.125,1747711079.457",
]


def joined(*runs):
    """A file of several runs: condition, load and rows of each."""
    lines = [f"{name},{qps},{row}" for name, qps, rows in runs for row in rows]
    return "\n".join([f"condition,qps,{HEADER}", *lines])


def test_one_run_is_read_and_told_by_its_header(written, imported):
    path = written(gzip.compress("\n".join([HEADER, *ROWS]).encode()))
    assert sniff(path) == "aibrix"
    run, [first, second, later] = imported(path)
    assert (first.arrival_ns, first.first_token_ns, first.finish_ns) == (
        0,
        2_974_000_000,
        4_228_000_000,
    )
    assert (second.arrival_ns, second.session) == (20_043_000_000, "user 179")
    assert (later.prompt_tokens, later.output_tokens, later.session) == (21202, 100, "user 321")
    assert (run.facts.engines, run.facts.other_settings) == (("vllm",), {})
    [note] = run.notes
    assert note.endswith("it is assumed that they share nothing")


def test_a_later_prompt_begins_with_the_one_before_and_its_answer(written, imported, workload_of):
    _, requests = imported(written("\n".join([HEADER, *ROWS])))
    first, other, later = (one.spec.prompt.token_ids() for one in workload_of(requests).arrivals())
    assert later[: len(first)].tolist() == first.tolist()
    assert first[0] != other[0]


def test_one_of_several_runs_is_chosen_by_its_number(written, imported, refusal):
    path = written(
        joined(("naive", "0.1", ROWS[:1]), ("naive", "0.5", ROWS[1:]), ("cached", "0.1", ROWS[:1]))
    )
    assert sniff(path) == "aibrix"
    assert refusal(path) == ("results: holds 3 runs: say which with --line N: naive 1-2, cached 3")
    assert refusal(path, line=4) == "results: --line 4: it has 3 runs: naive 1-2, cached 3"
    run, requests = imported(path, line=2)
    assert [request.rid for request in requests] == ["3", "4"]
    assert run.facts.other_settings == {"condition": "naive", "qps": "0.5"}
    assert run.notes[1].startswith("the same servers had 1 other loads before")
    run, _ = imported(path, line=3)
    assert len(run.notes) == 1


def test_an_answer_without_a_token_failed(written, imported):
    _, [request] = imported(written(f"{HEADER}\n21073,0,0,0,2,1,5.5,6"))
    assert (request.finish_ns, request.failure) == (None, "no token came")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (HEADER, "results: holds no results"),
        (f"{HEADER}\n1,2,3", "results:2: 3 fields, expected 8"),
        (
            f"{HEADER}\n21073,100,soon,1,2,1,0,1",
            'results:2: ttft: "soon" is not a finite number of',
        ),
        (f"{HEADER}\n21073,100,-1,1,2,1,0,1", 'results:2: ttft: "-1" s is not a possible time'),
        (f"{HEADER}\n21073,1.5,1,1,2,1,0,1", 'results:2: generation_tokens: "1.5" is not a whole'),
        (f"{HEADER}\n21073,100,1,1,me,1,0,1", 'results:2: user_id: "me" is not a whole number'),
    ],
)
def test_bad_rows_are_named(written, refusal, content, reason):
    assert refusal(written(content)).startswith(reason)


def test_other_columns_are_refused(written):
    path = written("prompt_tokens,ttft\n1,2\n")
    with pytest.raises(InputError, match="results:1: the header must be prompt_tokens,generation"):
        read_results(path, "aibrix", ReadOptions())


def test_arrivals_are_not_drawn(written, refusal):
    path = written(f"{HEADER}\n{ROWS[0]}")
    assert refusal(path, draw_arrivals=1).startswith("--draw-arrivals has no effect")
