"""A few of the kills of `python -m fuzz.kills`, and what it takes for a promise that is broken."""

import gzip
import json
import signal
import sys

import pytest

from fuzz.attack import good_files
from fuzz.kills.commands import COMMANDS, KilledCommand
from fuzz.kills.judge import (
    Reference,
    faults_of_kill,
    faults_of_next,
    files_in,
    is_before_start,
    points_in,
)
from fuzz.kills.kills import Kill, Kills, drawn_kill
from fuzz.kills.process import TEMPORARY, Killed, run_command
from fuzz.kills.whole import why_broken

INT, TERM, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL
NAMED = {command.name: command for command in COMMANDS}
COMMAND = KilledCommand("made up", "made up", ("out/*",), points="points")
# Late ones, when files are written; when exactly depends on the machine, and what holds does not.
KILLS = [
    ("simulate run", 0.8, INT),
    ("calibrate fit", 0.5, TERM),
    pytest.param("simulate sweep", 0.7, KILL, marks=pytest.mark.long),
    pytest.param("simulate tune", 0.6, INT, marks=pytest.mark.long),
]


@pytest.fixture(scope="module")
def kills():
    with good_files(folders=False) as good, Kills(good, num_whole=1) as made:
        yield made


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize(("name", "share", "number"), KILLS)
def test_killed_command_leaves_what_it_promises(kills, name, share, number):
    assert not kills.one(Kill(NAMED[name], share, number), "kept").why


def test_same_seed_and_number_give_the_same_kill():
    drawn = [drawn_kill(3, number) for number in range(40)]
    assert drawn == [drawn_kill(3, number) for number in range(40)]
    assert {kill.number for kill in drawn} == {INT, TERM, KILL}
    assert len({kill.share for kill in drawn}) == 40
    assert {kill.command.name for kill in drawn} == set(NAMED)


@pytest.fixture
def folder(tmp_path):
    """What a whole run leaves."""
    made = tmp_path / "folder"
    (made / "out").mkdir(parents=True)
    (made / "points").mkdir()
    (made / "input.yaml").write_text("scheduler: {}\n")
    (made / "out/summary.json").write_text("{}\n")
    return made


def reference(folder):
    files = files_in(folder)
    return Reference(files, {"input.yaml": files["input.yaml"]}, None, 1.0)


def killed(code, err="", **more):
    return Killed(**{"code": code, "out": "", "err": err, "seconds": 1.0, "num_answered": 0,
                     "num_left": 0, **more})  # fmt: skip


INTERRUPTED, TERMINATED = "simulate: interrupted\n", "simulate: terminated\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "{}", line 3, in f\nKeyboardInterrupt\n'


@pytest.mark.parametrize(
    ("ended", "number"),
    [
        (killed(130, INTERRUPTED), INT),
        (killed(143, TERMINATED), TERM),
        (killed(-KILL), KILL),
        (killed(-INT), INT),
        (killed(-TERM), TERM),
        (killed(0), INT),
        (killed(1, TRACEBACK.format("<frozen site>")), INT),
    ],
)
def test_endings_that_are_right(folder, ended, number):
    assert not [*faults_of_kill(COMMAND, reference(folder), folder, ended, number)]


@pytest.mark.parametrize(
    ("ended", "number", "why"),
    [
        (killed(None), INT, "still runs 150 s after the signal"),
        (killed(2, "simulate: no\n"), INT, "exit code 2"),
        (killed(130, TERMINATED), TERM, "exit code 130"),
        (killed(-INT), TERM, "exit code -2"),
        (killed(130, "sweep: 3 points\n"), INT, "does not say that it was interrupted"),
        (killed(0, TRACEBACK.format(__file__)), INT, "Traceback (most recent call last)"),
        (killed(-INT, num_left=2), INT, "2 processes outlived it"),
        (
            killed(130, f"sweep: 3 more points are stored; ...\n{INTERRUPTED}"),
            INT,
            "says that 3 points are stored, but 0 are",
        ),
    ],
)
def test_endings_that_are_wrong(folder, ended, number, why):
    assert [*faults_of_kill(COMMAND, reference(folder), folder, ended, number)] == [why]


def test_a_traceback_of_the_project_is_no_start_of_python():
    ended = killed(1, TRACEBACK.format("<frozen site>") + TRACEBACK.format(__file__))
    assert not is_before_start(ended, INT)


def test_what_a_kill_may_not_leave(folder):
    whole = reference(folder)
    (folder / "input.yaml").write_text("")
    (folder / "out/summary.json").write_text('{"a"')
    (folder / "out/other.json").write_text("{}")
    (folder / "points/1.json").write_text("{}")
    (folder / ".3-4.tmp").mkdir()
    (folder / ".3-4.tmp/half.json").write_text("")
    ended = killed(130, INTERRUPTED)
    faults = [*faults_of_kill(COMMAND, whole, folder, ended, INT)]
    assert [fault.partition(":")[0] for fault in faults] == [
        "changed its input input.yaml",
        "wrote out/other.json, which no other run writes",
        "out/summary.json is not whole",
        "wrote points/1.json, which no other run writes",
        "left .3-4.tmp",
        "left .3-4.tmp/half.json",
        "points/1.json is damaged",
    ]
    (folder / "out/summary.json").write_text('{"a": 1}')
    said = "out/summary.json differs from that of a whole run"
    assert said in [*faults_of_kill(COMMAND, whole, folder, ended, INT)]
    # SIGKILL leaves a temporary file, but no half-written one.
    killing = [*faults_of_kill(COMMAND, whole, folder, killed(-KILL), KILL)]
    assert said in killing
    assert not any(fault.startswith("left ") for fault in killing)


def test_only_what_a_whole_run_leaves_for_the_system_to_remove_may_be_left(folder):
    (folder.parent / TEMPORARY / "cache").mkdir(parents=True)
    ended, whole = killed(130, INTERRUPTED), reference(folder)
    assert [*faults_of_kill(COMMAND, whole, folder, ended, INT)] == ["left cache"]
    whole = whole._replace(left=frozenset({"cache"}))
    assert not [*faults_of_kill(COMMAND, whole, folder, ended, INT)]


def test_what_the_next_run_may_not_leave(folder):
    (folder / "points/1.json").write_text("{}")
    (folder / "points/2.json").write_text("{}")
    whole, kept = reference(folder), points_in(COMMAND, folder)
    assert not [*faults_of_next(COMMAND, whole, folder, killed(0), kept)]
    (folder / "out/summary.json").unlink()
    (folder / "points/1.json").write_text("[]")
    (folder / "points/2.json").unlink()
    (folder / "points/.3-4.tmp").write_text("")
    del kept["points/2.json"]
    assert [*faults_of_next(COMMAND, whole, folder, killed(1), kept)] == [
        "run again: exit code 1",
        "run again: no out/summary.json",
        "run again: wrote points/1.json anew",
        "run again: no points/2.json",
        "run again: left points/.3-4.tmp",
    ]


def test_server_that_forgets_an_answer_is_found(folder):
    serve = COMMAND._replace(points="", num_asked=2)
    lines = json.dumps({"rid": "0"}).encode() + b"\n"
    (folder / "out/workload.jsonl.gz").write_bytes(gzip.compress(lines))
    for num, faults in ((1, []), (2, ["kept 1 of 2 requests that were answered"])):
        ended = killed(0, num_answered=num)
        assert [*faults_of_kill(serve, reference(folder), folder, ended, INT)] == faults


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("a.json", b'{"a": 1}\n'),
        ("a.jsonl", b'{"a": 1}\n{"a": 2}\n'),
        ("a.jsonl.gz", gzip.compress(b'{"a": 1}\n', mtime=0)),
        ("a.csv", b"a,b\n1,2\n"),
        ("a.yaml", b"scheduler: {a: 1}\n"),
        ("a.png", b"\x89PNG...IEND\xaeB`\x82"),
        ("a.html", b"<html></html>\n"),
    ],
)
def test_half_a_file_is_broken(tmp_path, name, whole):
    path = tmp_path / name
    path.write_bytes(whole)
    assert not why_broken(path)
    for size in (0, len(whole) // 3, len(whole) - 2):
        path.write_bytes(whole[:size])
        assert why_broken(path), size


def test_file_of_an_unknown_kind_is_not_taken_for_whole(tmp_path):
    (tmp_path / "a.xyz").write_text("")
    assert why_broken(tmp_path / "a.xyz") == "of an unknown kind"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_process_that_outlives_the_command_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("fuzz.kills.process._LEFT_S", 0)
    (tmp_path / "folder").mkdir()
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{}'])"
    waits = "import signal; signal.pause()"
    (tmp_path / "folder/leaving.py").write_text(code.format(waits))
    ended = run_command(["leaving"], tmp_path / "folder")
    assert (ended.code, ended.num_left) == (0, 1)
