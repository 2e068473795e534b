"""AIPerf's records: one request on each line, every metric with its unit."""

import json

import numpy as np
import pytest

from sim.commands.import_results import sniff

START_NS = 1_759_813_207_532_900_363


def record(place, *, start_ms=0, metadata=None, error=None, **metrics):
    """A record of a request of 550 tokens that took 297.5 ms; `metrics` replace some of it."""
    made = {
        "input_sequence_length": {"value": 550, "unit": "tokens"},
        "output_sequence_length": {"value": 9, "unit": "tokens"},
        "time_to_first_token": {"value": 255.5, "unit": "ms"},
        "request_latency": {"value": 297.5, "unit": "ms"},
        **metrics,
    }
    return {
        "metadata": {
            "session_num": place,
            "x_request_id": f"id-{place}",
            "conversation_id": f"c{place}",
            "turn_index": 0,
            "request_start_ns": START_NS + start_ms * 1_000_000,
            "request_end_ns": START_NS + start_ms * 1_000_000 + 300_000_000,
            "benchmark_phase": "profiling",
            "was_cancelled": False,
            **(metadata or {}),
        },
        "metrics": {key: value for key, value in made.items() if value is not None},
        "error": error,
    }


def lines(*records):
    return "".join(f"{json.dumps(one)}\n" for one in records)


def failed(place, **more):
    nothing = dict.fromkeys(
        (
            "input_sequence_length",
            "output_sequence_length",
            "time_to_first_token",
            "request_latency",
        )
    )
    error = {"code": 499, "type": "RequestCancellationError", "message": "after 0.5 seconds"}
    return record(place, error=error, **nothing, error_isl={"value": 70, "unit": "tokens"}, **more)


def test_records_give_requests_by_their_ids(written, imported):
    """Times are converted from the record's units, exact to the nanosecond."""
    seconds = {"value": 0.2555, "unit": "sec"}
    path = written(lines(record(1, start_ms=40), record(0, time_to_first_token=seconds)))
    assert sniff(path) == "aiperf"
    run, requests = imported(path)
    assert [one.rid for one in requests] == ["id-0", "id-1"]
    for one, start_ms in zip(requests, (0, 40), strict=True):
        assert one.arrival_ns == start_ms * 1_000_000
        assert one.first_token_ns == one.arrival_ns + 255_500_000
        assert one.finish_ns == one.arrival_ns + 297_500_000
        assert (one.prompt_tokens, one.output_tokens) == (550, 9)
    assert run.left_out == ()


def test_server_counts_go_before_the_clients(written, imported):
    """The client's own count lacks the chat template."""
    counted = {
        "usage_prompt_tokens": {"value": 561, "unit": "tokens"},
        "usage_completion_tokens": {"value": 10, "unit": "tokens"},
    }
    _, [request] = imported(written(lines(record(0, **counted))))
    assert (request.prompt_tokens, request.output_tokens) == (561, 10)


def test_failed_record_stays_without_a_finish(written, imported):
    """Its prompt's length is known, its output's is not."""
    _, [good, bad] = imported(written(lines(record(0), failed(1, start_ms=5))))
    assert good.failure == ""
    assert bad.failure == "RequestCancellationError: after 0.5 seconds"
    assert (bad.prompt_tokens, bad.output_tokens, bad.finish_ns) == (70, None, None)
    assert not bad.has_lengths


def test_request_without_streaming_has_no_first_token(written, imported):
    """Only its last token's time is known."""
    _, [request] = imported(written(lines(record(0, time_to_first_token=None))))
    assert (request.first_token_ns, request.finish_ns) == (None, 297_500_000)


def test_warm_up_and_nameless_records_are_kept(written, imported):
    """Warm-up requests load the server, too; a missing id is replaced by a number."""
    warm = record(3, metadata={"benchmark_phase": "warmup", "x_request_id": None})
    run, [request] = imported(written(lines(warm)))
    assert request.rid == "3-0"
    assert "1 of the requests are from the warm-up" in run.notes


def test_inputs_beside_the_records_tell_what_prompts_share(written, imported, workload_of):
    """Equal texts become equal prompts, and different ones share their common beginning."""
    same = "You are a helpful assistant. " * 30
    texts = [same + "What is a cat?", same + "What is a dog, by the way?", same + "What is a cat?"]
    payloads = [
        {"model": "m", "stream": True, "messages": [{"role": "user", "content": text}]}
        for text in texts
    ]
    data = [{"session_id": f"c{i}", "payloads": [one]} for i, one in enumerate(payloads)]
    written(json.dumps({"data": data}), "inputs.json")
    path = written(lines(*(record(i, start_ms=i) for i in range(3))))
    run, requests = imported(path)
    assert any("inputs.json" in note for note in run.notes)
    first, second, third = (one.spec.prompt.token_ids() for one in workload_of(requests).arrivals())
    assert np.array_equal(first, third)
    alike = int(np.flatnonzero(first != second)[0])
    assert 500 < alike < 550


def talk(place, turn, tokens, **more):
    """A turn of one conversation; its prompt has `tokens` tokens."""
    metadata = {"x_correlation_id": "talk", "turn_index": turn}
    length = {"value": tokens, "unit": "tokens"}
    return record(place, start_ms=place, metadata=metadata, input_sequence_length=length, **more)


def test_later_turns_begin_with_the_turn_before_and_its_answer(written, imported, workload_of):
    """Turns of 550 and 9 tokens, then 600: the second finds 559 of its tokens in the cache."""
    rows = [record(0), talk(1, 0, 550), talk(2, 1, 600)]
    run, [alone, first, later] = imported(written(lines(*rows)))
    assert (alone.session, first.session, later.session) == ("", "talk", "talk")
    assert any("1 of 1 later turns begin with" in note for note in run.notes)
    arrivals = workload_of([alone, first, later]).arrivals()
    _, one, two = (request.spec.prompt.token_ids() for request in arrivals)
    assert (one == two[:550]).all()
    assert len(two) == 600


def test_a_later_turn_that_is_shorter_is_not_linked(written, imported):
    """Its client counts the new tokens alone."""
    run, _ = imported(written(lines(talk(0, 0, 550), talk(1, 1, 40))))
    assert any("0 of 1 later turns" in note for note in run.notes)


def test_accepted_tokens_of_speculation_are_marked(written, imported):
    """The mean over requests that have such a record."""
    speculative = {**record(0), "spec_decode_acceptance": {"mean_acceptance_length": 2.5}}
    run, _ = imported(written(lines(speculative, record(1))))
    assert run.facts.tokens_at_a_time == 2.5


BAD = [
    ({"request_latency": None},
     "metrics.request_latency: missing, or 0, in a request that did not fail"),
    ({"output_sequence_length": {"value": 0, "unit": "tokens"}},
     "metrics.output_sequence_length: missing, or 0, in a request that did not fail"),
    ({"time_to_first_token": {"value": 3, "unit": "fortnights"}},
     'metrics.time_to_first_token: its unit "fortnights" is none of ns, us, µs, ms, sec, s'),
    ({"time_to_first_token": 3}, "metrics.time_to_first_token: 3 is not a value with a unit"),
    ({"request_latency": {"value": -1, "unit": "ms"}}, "metrics.request_latency: -1 is not a time"),
    ({"input_sequence_length": {"value": 5, "unit": "ms"}},
     'metrics.input_sequence_length: its unit is "ms", not tokens'),
    ({"metadata": {"request_start_ns": None}}, "request_start_ns: null is not a whole number"),
    ({"metadata": {"turn_index": "x"}}, 'turn_index: "x" is not a whole number'),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "reason"), BAD)
def test_bad_record_is_refused_with_line_and_key(written, refusal, changes, reason):
    assert refusal(written(lines(record(0), record(1, **changes)))) == f"results:2: {reason}"


def test_two_records_of_one_id_are_refused(written, refusal):
    path = written(lines(record(0), record(1, metadata={"x_request_id": "id-0"})))
    assert refusal(path) == "results: request 'id-0' occurs 2 times"


def test_first_token_after_the_last_is_refused(written, refusal):
    path = written(lines(record(0, time_to_first_token={"value": 400, "unit": "ms"})))
    assert refusal(path) == (
        "results: request id-0: arrival, first token and finish are not in this order"
    )


def test_conversation_that_inputs_lack_is_refused(written, refusal):
    written(json.dumps({"data": []}), "inputs.json")
    line = refusal(written(lines(record(0))))
    assert line == 'inputs.json: data: no session_id "c0", which request id-0 belongs to'
