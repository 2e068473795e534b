"""What holds for the log of any engine: files, stamps, colours, and damaged lines."""

import gzip
from pathlib import Path

import pytest

from sim.core.errors import InputError
from sim.families import open_server_log
from sim.server_log.read import logs_of
from sim.server_log.records import Kind
from tests.server_log.test_sglang_log import ARGS, DECODE, PREFILL
from tests.server_log.test_vllm_log import ITERATION

JUNE = 1_781_152_722_000_000  # 2026-06-11 04:38:42, as if it were UTC


def test_rotated_and_gzipped_files_are_one_log(tmp_path):
    paths = [tmp_path / "server.log.1.gz", tmp_path / "server.log"]
    paths[0].write_bytes(gzip.compress(f"{ARGS}\n{DECODE}\n".encode()))
    paths[1].write_text(f"{PREFILL}\n{DECODE}\n", encoding="utf-8")
    log = open_server_log(paths)
    assert [event.line for event in log.events()] == [2, 3, 4]
    assert log.counts == {Kind.SETTINGS: 1, Kind.DECODE: 2, Kind.PREFILL: 1}


def test_files_are_read_in_the_order_of_their_times(tmp_path):
    names = ["server.log", "server.log.1", "server.log.2"]
    paths = [tmp_path / name for name in names]
    later = [DECODE.replace("04:38:42", f"04:{minute}:42") for minute in (58, 48)]
    for path, lines in zip(paths, (later[0], later[1], ARGS), strict=True):
        path.write_text(f"{lines}\n", encoding="utf-8")
    log = open_server_log(paths)
    times_us = [event.at_us for event in log.events()]
    assert times_us == sorted(times_us)
    assert log.paths == paths[::-1]
    assert log.name == f"{paths[2]} to {paths[0]}"


@pytest.mark.parametrize(
    ("names", "num_logs"),
    [
        (["server.log", "server.log.1", "server.log.12.gz"], 1),
        (["server.log-20261127.gz", "server.log"], 1),
        (["0.log", "0.log.20261127-093318.gz", "0.log.20261127-101500"], 1),
        (["c4.server.log.gz", "c64.server.log.gz"], 2),
        (["server-4", "server-64"], 2),
        (["a/server.log", "b/server.log.1"], 2),
    ],
)
def test_names_tell_which_files_are_one_log(names, num_logs):
    logs = logs_of([Path(name) for name in names])
    assert len(logs) == num_logs
    assert [str(path) for log in logs for path in log] == names


def test_last_line_that_is_cut_off_is_not_read(read_log):
    """Its last number may not be whole."""
    log, events = read_log(f"{DECODE}\n{DECODE[:-1]}".encode(), f"{DECODE}\n".encode())
    assert [event.line for event in events] == [1, 3]
    assert log.counts[Kind.CUT] == 1
    assert any("cut off" in note for note in log.notes())


def test_first_line_that_is_cut_off_is_not_taken_for_a_batch(read_log):
    log, events = read_log([DECODE[25:], DECODE])
    assert [event.line for event in events] == [2]
    assert sum(log.counts.values()) + log.num_not_understood == 2


@pytest.mark.parametrize(
    ("before", "at_us"),
    [
        ("1781152722000123\t", JUNE + 123),
        ("1781152722000123 ", JUNE + 123),
        ("1781152722.5 ", JUNE + 500_000),
        ("2026-06-11T04:38:42.123456789Z ", JUNE + 123_456),
        ("2026-06-11T06:38:42.25+02:00 stdout F ", JUNE + 250_000),
        ("server-1  | 2026-06-11T04:38:42Z ", JUNE),
    ],
)
def test_stamp_before_the_line_is_its_time(read_log, before, at_us):
    for line in (DECODE.replace("04:38:42", "23:11:10"), ITERATION):
        log, events = read_log([before + line])
        assert [event.at_us for event in events] == [at_us]
        assert log.notes() == ["times are those of the stamps before the lines"]


@pytest.mark.parametrize(
    "before",
    ["server-1  | ", "(head, rank=0, pid=18260) ", "Capturing: 100%|██| ", "1781152722 12 "],
)
def test_other_words_before_the_line_are_no_time(read_log, before):
    _, events = read_log([DECODE, before + DECODE])
    assert [event.at_us for event in events] == [JUNE, JUNE]


def test_line_without_a_stamp_has_no_time_among_lines_with_one(read_log):
    """Two clocks are not mixed."""
    _, events = read_log([f"1781152722000123 {DECODE}", DECODE])
    assert [event.at_us for event in events] == [JUNE + 123, None]


def test_colours_progress_bars_and_other_bytes_do_not_matter(read_log):
    _, events = read_log(
        f"\x1b[32m{DECODE}\x1b[0m\r\n 10%|#| 1/9\r 99%|#| 9/9\r{DECODE}\r\n".encode()
        + b"\xff\xfe\x00 not UTF-8\n\xe9"
        + f"{DECODE}\n".encode()
    )
    assert [event.line for event in events] == [1, 2, 4]
    assert len({tuple(event.fields.items()) for event in events}) == 1


def test_lines_that_are_not_understood_are_counted_and_shown(read_log):
    damaged = [
        DECODE.replace("#running-req: 16", "#running-req: many"),  # not a number
        DECODE.replace("#queue-req: 3", "#queue-req: 3" + DECODE[25:]),  # two lines in one
        DECODE.replace("#running-req: 16, ", ""),  # a value is missing
        DECODE.replace("0.05", "nan"),
        PREFILL.replace("#new-token: 700", "#new-token: 7" + "0" * 30),
    ]
    log, events = read_log([DECODE, *damaged])
    assert [event.line for event in events] == [1]
    assert log.num_not_understood == 5
    begin = "not understood: 5 lines, e.g. line 2: [2026-06-11 04:38:42 TP0] Decode batch, #running"
    assert log.notes()[0].startswith(begin)


def test_value_that_is_not_known_is_counted_and_left_out(read_log):
    newer = DECODE.replace("#queue-req", "#moon-phase: 4, #queue-req")
    log, events = read_log([newer, newer])
    assert "num_waiting" in events[0].fields
    assert "not known, and left out of 2 lines: '#moon-phase'" in log.notes()


def test_log_of_endless_shapes_is_not_kept_in_memory(read_log):
    lines = [DECODE.replace("#queue-req", f"#moon-{n}: 4, #queue-req") for n in range(300)]
    log, events = read_log([DECODE, *lines, DECODE])
    assert len(events) + log.num_not_understood == 302
    assert log.num_not_understood == 101
    assert events[-1].line == 302


def test_settings_that_are_cut_off_are_not_understood(read_log):
    log, _ = read_log([DECODE, ARGS[:-40]])
    assert log.num_not_understood == 1
    assert log.num_starts == 0


def test_invalid_time_is_no_time(read_log):
    _, events = read_log([DECODE, DECODE.replace("06-11", "13-32")])
    assert [event.at_us for event in events] == [JUNE, None]


def test_other_text_is_refused(tmp_path):
    path = tmp_path / "other.log"
    path.write_text("hello\n", encoding="utf-8")
    with pytest.raises(InputError, match="no line is of a log of SGLang or vLLM"):
        open_server_log([path])
