"""What SGLang exports with `--export-metrics-to-file`: files of hours, and what they may lack."""

import json

import pytest

from sim.commands.import_results import sniff
from tests.workload.results.test_sglang_log import out


def exported(rid, at_ms=0, asked=None, **more):
    meta = out(rid, at_ms=at_ms)["meta_info"] | more
    asked = {"rid": rid, "sampling_params": {"max_new_tokens": 8}} | (asked or {})
    return json.dumps({"request_parameters": json.dumps(asked), **meta}) + "\n"


def test_folder_has_a_file_for_each_hour(tmp_path, imported):
    for hour, rid, at_ms in (("10", "b", 3_600_000), ("09", "a", 0)):
        path = tmp_path / f"sglang-request-metrics-20261127_{hour}.log"
        path.write_text(exported(rid, at_ms), encoding="utf-8")
    assert sniff(tmp_path) == "sglang-export"
    run, requests = imported(tmp_path)
    assert [request.rid for request in requests] == ["a", "b"]
    assert requests[1].arrival_ns - requests[0].arrival_ns == 3600 * 10**9
    assert {(one.prompt_tokens, one.output_tokens) for one in requests} == {(20, 8)}
    assert run.notes == ("2 prompts are not in the file: it is assumed that they share no prefix",)


def test_health_checks_are_left_out_and_aborted_requests_fail(written, imported):
    abort = {"type": "abort", "message": "gone"}
    path = written(exported("HEALTH_CHECK_1") + exported("a", finish_reason=abort))
    _, (request,) = imported(path)
    assert request.failure == "aborted: gone"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (exported("a") + exported("a"), ':2: id: "a" is of an earlier line, too'),
        (exported("a", request_received_ts=None), ":1: request_received_ts: missing: start the"),
        (exported("a", prompt_tokens=0), ":1: prompt_tokens: 0 is not a number of tokens"),
        (exported("a", id=5), ":1: id: 5 is not a request id"),
        (exported("a").replace('"{', '"['), ":1: request_parameters: is no JSON object"),
        (exported("HEALTH_CHECK_1"), "holds no results"),
    ],
)
def test_bad_files_are_refused_in_one_line(written, refusal, content, reason):
    assert reason in refusal(written(content))
