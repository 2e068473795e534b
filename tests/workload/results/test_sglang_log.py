"""SGLang's request log: as json, as text, with and without the server's own times."""

import json
from datetime import datetime, timedelta

import pytest

from sim.commands.import_results import sniff

MS = 1_000_000
NOON = datetime(2026, 1, 31, 12)  # noqa: DTZ001 - as SGLang writes it: without a zone
# The same moment in the server's time zone, two hours ahead of UTC.
NOON_S = 1_769_853_600


def obj(rid, **more):
    return {"rid": rid, "log_metrics": True, "stream": True, **more}


def out(rid, *, at_ms=None, **more):
    """The output of a request with 20 prompt tokens: 8 tokens in 400 ms; `at_ms` adds times."""
    meta = {
        "id": rid,
        "finish_reason": {"type": "length", "length": 8},
        "prompt_tokens": 20,
        "completion_tokens": 8,
        "e2e_latency": 0.4,
        **more,
    }
    if at_ms is not None:
        start_s = NOON_S + at_ms / 1000
        meta |= {
            "request_received_ts": start_s,
            "first_token_latency": 0.15,
            "forward_entry_time": start_s + 0.05,
            "request_finished_ts": start_s + 0.4,
        }
    return {"text": "eight words", "output_ids": [1] * 8, "meta_info": meta}


def json_line(event, rid, at_ms, request, output=None):
    row = {"timestamp": (NOON + timedelta(milliseconds=at_ms)).isoformat(), "event": event}
    row |= {"rid": rid, "obj": request} | ({} if output is None else {"out": output})
    return f"[2026-01-31 12:00:00] {json.dumps(row)}\n"


def received(rid, at_ms, **more):
    return json_line("request.received", rid, at_ms, obj(rid, **more))


def finished(rid, at_ms, output, **more):
    return json_line("request.finished", rid, at_ms, obj(rid, **more), output)


def text_line(word, second, rid, output=None, **more):
    fields = ", ".join(f"{name}={value!r}" for name, value in obj(rid, **more).items())
    what = f"{word}: obj=GenerateReqInput({fields})"
    return f"[2026-01-31 12:00:{second:02}] {what}{'' if output is None else f', out={output}'}\n"


NOISE = (
    "[2026-01-31 11:59:58] server_args=ServerArgs(model_path='m', log_requests=True)\n"
    "[2026-01-31 12:00:00 TP0] Prefill batch, #new-seq: 1, #new-token: 20\n"
)


def test_json_log_alone_tells_arrivals_and_finishes(written, imported):
    """From the time of receipt and the duration; the time of the first token is not logged."""
    log = NOISE + received("a", 0) + received("b", 100) + finished("a", 402, out("a"))
    path = written(log + finished("b", 503, out("b")))
    assert sniff(path) == "sglang-log"
    run, requests = imported(path)
    assert [(one.rid, one.arrival_ns, one.first_token_ns, one.finish_ns) for one in requests] == [
        ("a", 0, None, 400 * MS),
        ("b", 100 * MS, None, 500 * MS),
    ]
    assert [(one.prompt_tokens, one.output_tokens) for one in requests] == [(20, 8)] * 2
    assert run.notes == ("2 prompts are not in the log: it is assumed that they share no prefix",)


def test_servers_own_times_go_before_those_of_the_log(written, imported):
    """With metrics, the times of the first token and of scheduling are known, too."""
    _, [first, second] = imported(
        written(finished("a", 0, out("a", at_ms=0)) + finished("b", 0, out("b", at_ms=70)))
    )
    assert first.arrival_ns == 0
    assert second.arrival_ns == pytest.approx(70 * MS, abs=1000)
    assert second.first_token_ns - second.arrival_ns == 150 * MS
    assert second.scheduled_ns - second.arrival_ns == pytest.approx(50 * MS, abs=1000)
    assert second.finish_ns - second.arrival_ns == pytest.approx(400 * MS, abs=1000)


@pytest.mark.parametrize("ids", [list(range(100, 120)), None])
def test_request_that_never_finished_failed(written, imported, ids):
    """Its time is the log's, moved to the server's clock; its length is that of its tokens."""
    lines = received("a", 0) + received("lost", 250, input_ids=ids)
    _, requests = imported(written(lines + finished("a", 402, out("a", at_ms=0))))
    lost = requests[1]
    assert (lost.rid, lost.failure) == ("lost", "no line says that it finished")
    assert lost.arrival_ns == 250 * MS
    assert lost.prompt_tokens == (20 if ids else None)
    assert (lost.output_tokens, lost.finish_ns, lost.has_lengths) == (None, None, False)


def test_aborted_request_failed_with_the_tokens_it_got(written, imported):
    """The log has their number."""
    gone = out("a", finish_reason={"type": "abort", "message": "Client left"}, completion_tokens=3)
    _, [request] = imported(written(received("a", 0) + finished("a", 90, gone)))
    assert request.failure == "aborted: Client left"
    assert (request.output_tokens, request.finish_ns) == (3, None)
    assert request.has_lengths


def test_limits_are_the_clients_where_they_can_be(written, imported, workload_of):
    """An output shorter than its limit ended by itself; a limit that cannot be is not used."""
    cases = {
        "stopped": {"max_new_tokens": 50, "ignore_eos": False},
        "forced": {"max_new_tokens": 8, "ignore_eos": True},
        "odd": {"max_new_tokens": 50, "ignore_eos": True},
        "beyond": {"max_new_tokens": 5},
    }
    log = "".join(
        finished(rid, 0, out(rid, at_ms=place), sampling_params=params)
        for place, (rid, params) in enumerate(cases.items())
    )
    _, requests = imported(written(log))
    limits = {
        request.spec.rid: (request.spec.max_new_tokens, request.spec.ignore_eos)
        for request in workload_of(requests).arrivals()
    }
    assert limits == {
        "stopped": (50, False), "forced": (8, True), "odd": (50, False), "beyond": (8, True),
    }  # fmt: skip


def test_health_checks_are_counted_and_left_out(written, imported):
    log = finished("HEALTH_CHECK_1", 0, out("x")) + finished(
        "quiet", 0, out("x"), log_metrics=False
    )
    run, requests = imported(written(log + finished("a", 0, out("a", at_ms=0))))
    assert [one.rid for one in requests] == ["a"]
    assert "2 health checks are left out" in run.notes


def test_cut_prompts_share_what_the_log_shows(written, imported, workload_of):
    """At level 2, 1024 tokens at both ends; the middle could be anything."""
    ids = list(range(3000))
    cut = [*ids[:1024], "...", *ids[-1024:]]
    long = {"prompt_tokens": 3000}
    log = "".join(
        finished(rid, 0, out(rid, at_ms=place, **long), input_ids=cut)
        for place, rid in enumerate("ab")
    )
    run, requests = imported(written(log))
    first, second = (one.spec.prompt.token_ids() for one in workload_of(requests).arrivals())
    assert len(first) == len(second) == 3000
    assert (first[:1024] == second[:1024]).all()
    assert first[1024] != second[1024]
    assert "2 prompts are cut in the log: only their logged parts can be shared" in run.notes


def test_prompts_known_as_text_share_what_their_texts_do(written, imported, workload_of):
    """Whole texts stand in for tokens; one that was cut in the middle is not known."""
    cut = "x" * 1024 + "..." + "y" * 1024
    texts = {"a": "Say hello to the old cat.", "b": "Say hello to the old dog.", "c": cut, "d": cut}
    log = "".join(
        finished(rid, 0, out(rid, at_ms=place), text=text)
        for place, (rid, text) in enumerate(texts.items())
    )
    run, requests = imported(written(log))
    prompts = [one.spec.prompt.token_ids() for one in workload_of(requests).arrivals()]
    assert (prompts[0][:15] == prompts[1][:15]).all()
    assert prompts[0][-1] != prompts[1][-1]
    assert prompts[2][0] != prompts[3][0]
    assert any(note.startswith("2 prompts are not in the log") for note in run.notes)


def test_text_log_needs_the_servers_times(written, refusal):
    """Whole seconds are too coarse for arrivals."""
    log = NOISE + text_line("Receive", 0, "a") + text_line("Finish", 1, "a", out("a"))
    assert refusal(written(log)) == (
        "results:4: meta_info.request_received_ts: missing, and the log has whole seconds only:"
        " start the server with --enable-metrics, or with --log-requests-format json"
    )


def test_text_log_with_times_is_read(written, imported):
    """Failed requests come to the second; a note names them."""
    log = (
        NOISE
        + text_line("Receive", 0, "a")
        + text_line("Receive", 3, "lost", input_ids=[1, 2, 3])
        + text_line("Finish", 1, "a", out("a", at_ms=0), input_ids=list(range(20)))
    )
    run, [first, lost] = imported(written(log))
    assert first.first_token_ns == 150 * MS
    assert lost.arrival_ns == 3000 * MS
    assert lost.prompt_tokens == 3
    assert "the arrivals of failed requests are known to the second only: lost" in run.notes


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (finished("a", 0, {"text": ""}), "out.meta_info: missing"),
        (finished("a", 0, out("a", completion_tokens=None)),
         "meta_info.completion_tokens: missing"),
        (finished("a", 0, out("a", e2e_latency="soon")),
         'meta_info.e2e_latency: "soon" is not a time in seconds'),
        (finished("a", 0, out("a", e2e_latency=float("nan"))),
         "meta_info.e2e_latency: NaN is not a time in seconds"),
        (json_line("request.finished", 7, 0, obj("a"), out("a")), "rid: 7 is not a request id"),
        (json_line("request.finished", "a", 0, [], out("a")), "obj: [] is not an object"),
        (finished("a", 0, out("a"))[:-40], None),
        ('[2026-01-31 "event": "request.received", "rid": "a"\n', None),
        (text_line("Finish", 1, "a", out("a", at_ms=0))[:-40], None),
    ],
)  # fmt: skip
def test_bad_line_is_refused(written, refusal, line, reason):
    """Naming the key; a line that was cut off names its place."""
    told = refusal(written(NOISE + line))
    assert told.startswith("results:3: ")
    if reason is None:
        assert "cut off" in told or "malformed JSON" in told
    else:
        assert told == f"results:3: {reason}"


def test_request_that_finishes_twice_is_refused(written, refusal):
    log = finished("a", 0, out("a", at_ms=0)) * 2
    assert refusal(written(log)) == 'results:2: rid: "a" already finished on line 1'
