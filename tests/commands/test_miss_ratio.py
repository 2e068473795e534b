"""`simulate workload --miss-ratio`: the hit rate of caches of every size."""

import json

import pytest

ROWS = [
    {"timestamp": at, "input_length": 1025, "output_length": 1, "hash_ids": [first, first + 1, at]}
    for at, first in ((10, 1), (20, 3), (30, 1), (40, 3))
]


@pytest.fixture
def trace(tmp_path):
    """Two prompts in turn, each of two full blocks."""
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return path


def test_curve_is_printed_as_a_table_with_its_knee(simulate, trace):
    """Two blocks find nothing, four find all: 2,048 of 4,100 tokens."""
    ended = simulate("workload", trace, "--miss-ratio", "--model", "llama-3.1-8b")
    lines = ended.out.splitlines()
    assert lines[0] == f"{trace}: a trace, format mooncake"
    assert lines[1] == "cache tokens   blocks    GiB   hit rate %   of unlimited %"
    assert [line.split() for line in lines[3:6]] == [
        ["512", "1", "0.06", "0.00", "0.00"],
        ["1,024", "2", "0.12", "0.00", "0.00"],
        ["2,048", "4", "0.25", "49.95", "100.0"],
    ]
    knee = "2,048 tokens (0.25 GiB)"
    used = "8 blocks of 512 tokens are used, 4 different ones."
    assert lines[6:] == [
        f"{used} An unlimited cache finds 49.95 % of the prompts' tokens.",
        f"The knee, 90 % of that: {knee}. Beyond {knee} nothing more is found.",
    ]


def test_curve_as_json(simulate, trace):
    """With the smallest sizes for shares of what an unlimited cache finds."""
    found = json.loads(simulate("workload", trace, "--miss-ratio", "--format", "json").out)
    assert found["format"] == "mooncake"
    assert (found["block_size"], found["bytes_per_token"]) == (512, None)
    assert found["unlimited_hit_pct"] == pytest.approx(100 * 2048 / 4100)
    assert found["smallest"][0] == {"of_unlimited_pct": 50.0, "tokens": 1536}
    assert [row["hit_pct"] for row in found["sizes"]] == [0.0, 0.0, found["unlimited_hit_pct"]]


def test_curve_of_a_scenario_is_drawn(simulate, scenario, tmp_path):
    """The picture is a file of the kind that its name says."""
    ended = simulate("workload", scenario, "--miss-ratio", "--out", tmp_path / "c.png")
    assert "The knee, 90 % of that: 2,464 tokens." in ended.out
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["--model", "tiny"], "--model: needs --miss-ratio"),
        (["--out", "c.png"], "--out: needs --miss-ratio"),
        (["--miss-ratio", "--model", "nix"], "unknown model 'nix'"),
        (["--miss-ratio", "--out", "c.txt"], "c.txt: unknown suffix '.txt'"),
        (["--miss-ratio", "--out", "{trace}"], "unknown suffix '.jsonl'"),
    ],
)
def test_bad_options_are_refused(simulate, trace, args, error):
    """In one line."""
    ended = simulate("workload", trace, *(arg.format(trace=trace) for arg in args))
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert error in ended.err


def test_a_scenario_names_its_own_model(simulate, scenario):
    """Two models would be one too many."""
    ended = simulate("workload", scenario, "--miss-ratio", "--model", "tiny")
    assert ended.code == 2
    assert "--model: is for traces; a scenario has its own (--set model=NAME)" in ended.err


def test_fit_writes_statistics_and_says_how_near_they_come(simulate, trace, tmp_path):
    """The file is what kind `fitted` reads."""
    ended = simulate("workload", trace, "--fit", tmp_path / "f.json")
    assert json.loads((tmp_path / "f.json").read_text())["num_requests"] == 4
    lines = ended.out.splitlines()
    assert lines[1].split() == ["figure", "traffic", "drawn", "off", "by", "%"]
    assert any(line.startswith("hit rate %, unlimited cache ") for line in lines)
    ended = simulate("workload", trace, "--fit", tmp_path / "f.json", "--format", "json")
    figures = json.loads(ended.out)["figures"]
    assert {"figure", "given", "drawn", "off_pct"} == set(figures[0])


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["--miss-ratio"], "--fit and --miss-ratio exclude each other"),
        (["--set", "workload.limit=1"], "--fit: needs two requests or more"),
    ],
)
def test_bad_fit_is_refused(simulate, trace, tmp_path, args, error):
    """In one line, and nothing is written."""
    ended = simulate("workload", trace, "--fit", tmp_path / "f.json", *args)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert error in ended.err
    assert not (tmp_path / "f.json").exists()
