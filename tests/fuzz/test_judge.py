"""What a command may not do, whatever its input is."""

import json

import pytest

from fuzz.judge import MAX_ERROR, Ended, faults
from fuzz.mutate import TRAP

RUN = [["simulate", "run", "a.yaml"]]
COMPARE = [["simulate", "compare", "a", "b"]]
REASON = "simulate: a.yaml:3: seed: is below 0\n"


@pytest.mark.parametrize(
    ("ended", "commands", "said"),
    [
        (Ended(0, '{"mean_ttft_ms": 3.5}', "servetwin: a remark\n"), RUN, []),
        (Ended(2, "", f"servetwin: a remark\n{REASON}"), RUN, []),
        (Ended(1, "they differ", ""), COMPARE, []),
        (Ended(1, "they differ", ""), [["limited", "limit.json", *COMPARE[0]]], []),
        (Ended(1, "they differ", ""), [["called", "line.json"]], []),
        (Ended(1, "", "simulate: the account does not add up\n"), RUN, ["exit code 1"]),
        (Ended(None, "", "", "no word for 10 s"), RUN, ["no word for 10 s"]),
        (Ended(2, "", ""), RUN, ["exit code 2 without a word"]),
        (Ended(2, "", "No!\n"), RUN, ["exit code 2, and the last line on stderr does not say why"]),
        (Ended(0, "", "Warning: a\n"), RUN, ["Warning:"]),
        (Ended(0, "\x1b[31m", ""), RUN, ["control characters on stdout"]),
        (Ended(0, '{"mean_ttft_ms": -1}', ""), RUN, ["a wrong figure: mean_ttft_ms -1"]),
        (
            Ended(2, "", f"simulate: {'a' * MAX_ERROR}\n"),
            RUN,
            [f"a line of {MAX_ERROR + 10} characters on stderr"],
        ),
    ],
)
def test_ending_is_judged(tmp_path, ended, commands, said):
    (tmp_path / "line.json").write_text(json.dumps(COMPARE[0]))
    assert faults(ended, commands, tmp_path, {}) == said


def test_files_are_judged(tmp_path):
    (tmp_path / "a.yaml").write_text("changed")
    (tmp_path / TRAP).touch()
    (tmp_path / ".3-4.tmp").touch()
    assert faults(Ended(0, "", ""), RUN, tmp_path, {"a.yaml": b"given"}) == [
        "ran a module",
        "changed its input a.yaml",
        "left a temporary file",
    ]
