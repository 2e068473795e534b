"""`simulate workload` takes a trace itself, and says what its reader left out."""

import json

import pytest

HEADER = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
TEXT = f"{HEADER}\n5,ChatGPT,472,18,490,API log\n6,ChatGPT,10,0,10,API log\n7,GPT-4,40,9,49,x\n"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(TEXT)
    return path


def test_workload_recognises_a_trace_and_takes_its_keys(simulate, trace):
    """`--set` changes the keys that a scenario's workload would have."""
    ended = simulate("workload", trace, "--set", "workload.time_scale=0.5")
    assert ended.out.splitlines()[0] == f"{trace}: a trace, format burstgpt"
    assert ended.out.splitlines()[-1] == "1 row left out: failed, with 0 tokens"
    found = json.loads(simulate("workload", trace, "--format", "json").out)
    assert (found["format"], found["num_requests"], found["span_s"]) == ("burstgpt", 2, 2.0)
    assert found["notes"] == ["1 row left out: failed, with 0 tokens"]


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (
            ["--set", "workload.limits=3"],
            "--set workload.limits=3: unknown key (did you mean limit?)",
        ),
        (["--set", "replicas=3"], "--set replicas=3: unknown key"),
        (["--from", "weka"], "{path}:1: malformed JSON: Expecting value"),
    ],
)
def test_workload_of_a_trace_names_what_is_wrong(simulate, trace, args, error):
    """An option, or the file."""
    ended = simulate("workload", trace, *args)
    assert ended.code == 2
    assert error.format(path=trace) in ended.err


def test_workload_of_an_unknown_table_lists_the_formats(simulate, trace):
    """It is no scenario either."""
    trace.write_text("a,b\n1,2\n")
    line = simulate("workload", trace).err
    assert "is a trace in no known format" in line
    assert "mooncake, azure" in line


def test_run_says_what_a_trace_left_out(simulate, trace, tmp_path):
    """In the summary, below its tables."""
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "name: s\nlatency: {kind: linear, step_s: 0.01, per_prefill_token_s: 0,"
        " per_decode_request_s: 0, per_context_token_s: 0}\nscheduler: {max_total_tokens: 8192}\n"
        f"workload: {{kind: trace, format: burstgpt, path: {trace.name}}}\n"
    )
    assert "traffic: 1 row left out: failed, with 0 tokens" in simulate("run", scenario).out
    summary = json.loads(simulate("run", scenario, "--format", "json").out)
    assert summary["traffic_notes"] == ["1 row left out: failed, with 0 tokens"]
