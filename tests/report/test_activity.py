"""Decision logs as what servers and requests did: every moment of a request belongs to one span."""

import pytest

from sim.core.errors import InputError
from sim.report.timeline import MAX_REQUESTS, RequestSpan, SpanKind, activity, timeline_page, within

Q, P, B, D, R, _ = SpanKind


def step(begin, end, prefill=(), decode=0, **more):
    mode = "mixed" if prefill and decode else "extend" if prefill else "decode"
    return {
        "kind": "step", "replica": 0, "t_decided_ns": begin, "t_start_ns": begin,
        "t_end_ns": end, "mode": mode, "prefill": [list(row) for row in prefill],
        "n_decode": decode, "ratio": None, **more,
    }  # fmt: skip


def request(rid, arrival, finish, status="finished", **more):
    return {"kind": "req", "rid": rid, "replica": 0, "arrival_ns": arrival, "finish_ns": finish,
            "status": status, **more}  # fmt: skip


def spans_of(steps, *requests):
    (server,) = activity([*steps, *requests])
    return {one.rid: [(s.kind, s.begin_ns, s.end_ns) for s in one.spans] for one in server.requests}


def test_a_request_waits_computes_chunks_and_decodes():
    steps = [
        step(10, 20, [("a", 0, 8)]),
        step(20, 30, [("b", 0, 8)]),
        step(35, 40, [("a", 8, 3)]),
        step(40, 50, decode=2, decode_crc=7),
    ]
    assert spans_of(steps, request("a", 4, 50), request("b", 5, 50)) == {
        "a": [(Q, 4, 10), (P, 10, 20), (B, 20, 35), (P, 35, 40), (D, 40, 50)],
        "b": [(Q, 5, 20), (P, 20, 30), (D, 30, 50)],
    }


@pytest.mark.parametrize("put_back", [{"retracted": ["a"]}, {"preempted": [["b", ["a"]]]}])
def test_a_request_that_is_put_back_waits_again(put_back):
    steps = [step(0, 10, [("a", 0, 8)]), step(10, 20, decode=1, decode_crc=1),
             step(20, 30, [("b", 0, 8)], **put_back), step(30, 40, [("a", 0, 9)])]  # fmt: skip
    found = spans_of(steps, request("a", 0, 60))
    assert found == {"a": [(P, 0, 10), (D, 10, 20), (R, 20, 30), (P, 30, 40), (D, 40, 60)]}


def test_requests_without_an_end_end_where_they_were_given_up_or_with_the_log():
    steps = [step(0, 10, [("a", 0, 8), ("b", 0, 8)]), step(10, 30, decode=1, aborted=["a"])]
    requests = [request("a", 0, None, "aborted"), request("b", 0, None, "running"),
                request("c", 5, None, "rejected"), request("d", 5, None, "waiting")]  # fmt: skip
    (server,) = activity([*steps, *requests])
    assert [one.end_ns for one in server.requests] == [10, 30, 5, 30]
    assert server.requests[2].spans == []


def test_decode_steps_of_the_same_rows_are_one_run():
    steps = [step(0, 10, [("a", 0, 8)])]
    steps += [step(at, at + 10, decode=1, decode_crc=5, used=at) for at in (10, 20, 30)]
    steps += [step(40, 50, decode=1, decode_crc=6)]
    (server,) = activity([*steps, request("a", 0, 50)])
    assert [(one.begin_ns, one.end_ns, one.num_steps, one.used) for one in server.steps] == [
        (0, 10, 1, 0), (10, 40, 3, 30), (40, 50, 1, 0),
    ]  # fmt: skip


def test_a_part_of_the_time_has_what_reaches_into_it():
    steps = [step(0, 10, [("a", 0, 8)]), step(10, 20, decode=1), step(20, 30, [("b", 0, 8)])]
    servers = activity([*steps, request("a", 0, 20), request("b", 25, 30)])
    (part,) = within(servers, 12, 22)
    assert [one.begin_ns for one in part.steps] == [10, 20]
    assert [one.rid for one in part.requests] == ["a"]
    with pytest.raises(InputError, match="nothing happens"):
        within(servers, 30, 40)


def test_page_says_what_it_leaves_out():
    requests = [request(str(n), n * 10**9, None, "waiting") for n in range(MAX_REQUESTS + 5)]
    page = timeline_page("many", activity([step(0, 10, [("a", 0, 8)]), *requests]))
    assert "2,005 requests, 1 step, 1 server:" in page
    assert "Requests that arrived after 1,999 s are left out: --begin and --end choose" in page
    assert '"1999"' in page
    assert '"2000"' not in page


def test_spans_are_plain():
    assert RequestSpan(P, 1, 2, 3) == (1, 1, 2, 3)
