"""Lines of a measured run that cannot be read are refused by line and key."""

import json

import pytest

from sim.core.errors import InputError
from sim.runlog.run_log_file import read_measured

LINE = {"rid": "a", "arrival_s": 0.5, "finish_s": 2.0, "prompt_tokens": 3, "output_tokens": 4}
TIMES = "arrival_s, scheduled_s, first_token_s, finish_s"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rid": 7}, "1: rid: must be printable text, got 7"),
        ({"arrival_s": None}, "1: arrival_s: is required"),
        ({"finish_s": -1}, "1: finish_s: must be seconds from 0 to 1e+09, got -1"),
        ({"finish_s": 2e9}, "1: finish_s: must be seconds from 0 to 1e+09, got 2000000000.0"),
        (
            {"output_tokens": 1.5},
            "1: output_tokens: must be a whole number from 0 to 2**40, got 1.5",
        ),
        ({"speed": 1}, "1: speed: unknown key"),
        ({"first_token_s": 0.1}, f"1: times out of order: must be ordered as {TIMES}"),
    ],
)
def test_bad_line_is_refused(tmp_path, change, message):
    path = tmp_path / "measured.jsonl"
    path.write_text(json.dumps(LINE | change), encoding="utf-8")
    with pytest.raises(InputError) as refused:
        read_measured(path)
    assert str(refused.value) == f"{path}:{message}"


def test_empty_file_is_refused(tmp_path):
    path = tmp_path / "measured.jsonl"
    path.write_text("", encoding="utf-8")
    with pytest.raises(InputError, match=r"measured\.jsonl: has no request$"):
        read_measured(path)
