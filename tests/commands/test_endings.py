"""Commands that end early: interrupted, by a bug, or because nobody reads their output."""

import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from threading import Thread

import pytest

import sim.commands.running.simulate
from sim.core.errors import AccountError, InvariantError
from sim.report.progress import Progress

OUTPUTS = (
    *("--out", "out", "--decisions", "d.jsonl", "--requests", "r.csv"),
    *("--perfetto", "p.json"),
)


def test_run_interrupted_half_way_leaves_nothing(simulate, scenario, listing, monkeypatch):
    """Ctrl-C while requests are served: one line, 130, no half-written file."""
    calls = count()

    def interrupt_the_twentieth(self, done, now_ns):
        if next(calls) == 20:
            raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "update", interrupt_the_twentieth)
    before = listing()
    ended = simulate("run", scenario, *OUTPUTS)
    assert ended == (130, "", "simulate: interrupted\n")
    assert next(calls) > 20
    assert listing() == before


def test_run_interrupted_while_writing_leaves_no_half_file(
    simulate, scenario, listing, monkeypatch
):
    """Ctrl-C while a table is written: what is there is whole, and nothing is temporary."""

    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("sim.tables.table.csv.writer", interrupt)
    before = listing()
    assert simulate("run", scenario, "--requests", "r.csv").code == 130
    assert listing() == before


def opened_by_both(path):
    """Our end of a named pipe, once somebody has opened the other one; fails after a minute."""
    ends = []
    opener = Thread(target=lambda: ends.append(os.open(path, os.O_WRONLY)), daemon=True)
    opener.start()
    opener.join(timeout=300)
    assert ends, "nobody reads the pipe"
    return ends[0]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("handler", ["default_int_handler", "SIG_IGN"])
def test_run_process_that_gets_a_signal_ends_with_130(trace_scenario, listing, handler):
    """A real SIGINT, sent while the process reads its trace from a pipe that stays silent."""
    Path("trace.jsonl").unlink()
    os.mkfifo("trace.jsonl")
    # A shell lets the jobs that a script starts with `&` ignore it, and children inherit that.
    code = (
        f"import signal, sys; signal.signal(signal.SIGINT, signal.{handler});"
        "from sim.cli import main; sys.exit(main())"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, "run", "study.yaml", *OUTPUTS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        pipe = opened_by_both("trace.jsonl")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
        os.close(pipe)
    assert (process.returncode, out, err) == (130, "", "simulate: interrupted\n")
    assert sorted(path.name for path in Path().iterdir()) == ["study.yaml", "trace.jsonl"]


PROGRAMS = {"sim": "command_line", "calibrate": "cli", "realrun": "cli"}


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_interrupted_while_it_loads_ends_without_a_traceback(python, program):
    """Ctrl-C before any command: nothing is to be tidied up, and nothing to be said."""
    last = f"{program}.{PROGRAMS[program]}"
    code = f"""
import os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {last!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv = [{program!r}, "--version"]
runpy.run_module({program!r}, run_name="__main__")
"""
    assert python("-c", code) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("ending", ["None", "os.abort()"])
def test_command_interrupted_while_it_loads_a_library_keeps_its_exit_code(python, scenario, ending):
    """Where a class of `dataclasses` is made, `python -m` would report SIGINT; a C extension that
    is half loaded can make the end of Python crash.
    """
    Path("interrupting.py").write_text(
        f"import atexit, os; atexit.register(lambda: {ending})"
        """
import os, signal, sys
import sim.commands.run
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "sim.scenario.load":
            exec("os.kill(os.getpid(), signal.SIGTERM)")
sys.meta_path.insert(0, Interrupt())
sys.argv = ["simulate", "run", "study.yaml"]
from sim.__main__ import main
sys.exit(main())
""",
        encoding="utf-8",
    )
    assert python("-m", "interrupting") == (143, "", "simulate: terminated\n")


@pytest.mark.parametrize("error", [InvariantError("page 3 freed twice"), KeyError("page 3")])
def test_run_internal_fault_is_owned_up_to(simulate, scenario, listing, monkeypatch, error):
    """Exit code 1, a traceback for the report, and a last line that does not blame the user."""

    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(sim.commands.running.simulate, "simulate", fail)
    before = listing()
    ended = simulate("run", scenario, *OUTPUTS)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("Traceback (most recent call last):\n")
    last = ended.err.splitlines()[-1]
    assert last == f"simulate: internal error, not your input: {type(error).__name__}: {error}"
    assert listing() == before


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_interrupt_that_a_library_takes_for_a_failed_import_is_one(
    simulate, scenario, monkeypatch, number, code, word
):
    """As C extensions do that are interrupted while they load."""

    def load(*_args, **_kwargs):
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt as interrupt:
            raise ImportError("initialization failed") from interrupt

    monkeypatch.setattr(sim.commands.running.simulate, "simulate", load)
    assert simulate("run", scenario, *OUTPUTS) == (code, "", f"simulate: {word}\n")


def test_run_on_a_full_disk_has_no_summary_not_even_an_earlier_one(
    simulate, on_full_disk, scenario
):
    """Which would be taken for its own."""
    assert simulate("run", scenario, "--out", "out").code == 0
    assert Path("out/summary.json").exists()
    ended = on_full_disk(1000, "run", scenario, "--out", "out")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith(": cannot be written: File too large\n")
    assert ended.err.count("\n") == 1
    assert not Path("out/summary.json").exists()
    assert not [path for path in Path("out").rglob("*") if path.name.startswith(".")]


def test_run_whose_account_does_not_add_up_fails_with_one_line(
    simulate, scenario, listing, monkeypatch
):
    def fail(*arguments, **options):
        raise AccountError("server 3 still has 1 requests (r7), 0 steps")

    monkeypatch.setattr(sim.commands.running.simulate, "simulate", fail)
    before = listing()
    said = "simulate: the account of the run does not add up: server 3 still has 1 requests (r7)"
    assert simulate("run", scenario, *OUTPUTS) == (1, "", f"{said}, 0 steps\n")
    assert listing() == before


def test_run_whose_reader_has_gone_says_nothing(python, scenario):
    """`simulate run | head -0`: no traceback, and not a success."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = python("-m", "sim", "run", scenario, stdout=writing)
    finally:
        os.close(writing)
    assert (ended.code, ended.err) == (1, "")


@pytest.mark.parametrize("closed", [[1], [1, 2]])
def test_command_whose_stdout_is_closed_fails_at_once(python, scenario, closed, listing):
    """`simulate run study.yaml >&-`: its results would be lost. The line is on stderr, if any."""
    close = "; ".join(f"os.close({number})" for number in closed)
    start = "os.execv(sys.executable, [sys.executable, '-m', 'sim', *sys.argv[1:]])"
    before = listing()
    code = f"import os, sys; {close}; {start}"
    ended = python("-c", code, "run", scenario, "--out", "out")
    line = "simulate: stdout is closed, so the results would be lost: give > /dev/null\n"
    assert ended == (2, "", "" if 2 in closed else line)
    assert listing() == before


def test_command_without_a_folder_for_temporary_files_says_so(
    simulate, scenario, listing, monkeypatch
):
    """Steps are kept in one until the run has ended."""
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: ["/dev/null"])
    before = listing()
    ended = simulate("run", scenario, "--timeline", "t.html")
    line = "simulate: No usable temporary directory found in ['/dev/null']\n"
    assert ended == (2, "", line)
    assert listing() == before


def test_command_whose_stderr_is_closed_runs(python, scenario):
    """`simulate run study.yaml 2>&-`: its remarks are not wanted."""
    start = "os.execv(sys.executable, [sys.executable, '-m', 'sim', *sys.argv[1:]])"
    ended = python("-c", f"import os, sys; os.close(2); {start}", "run", scenario)
    assert (ended.code, ended.err) == (0, "")
    assert "TTFT" in ended.out


def test_run_on_a_terminal_without_the_characters_still_prints(python, scenario):
    """A table's lines are no reason to fail."""
    ended = python("-m", "sim", "run", scenario, PYTHONIOENCODING="ascii")
    assert (ended.code, ended.err) == (0, "")
    assert "TTFT" in ended.out
