"""Measurements of a command: its times, peak memory and output."""

import subprocess
import sys

import pytest

from bench.process import measure
from sim.core.errors import InputError


def python(code):
    return [sys.executable, "-S", "-c", code]


def test_measure_peak_memory_is_the_childs(tmp_path):
    """What it wrote to counts, though it was given back before the end."""
    # In a small process: one that a large process starts has that one's peak until it begins.
    run = (
        "import sys; from pathlib import Path; from bench.process import measure;"
        " block = 'block = bytearray(600 << 20); del block';"
        f" print(measure([sys.executable, '-c', block], Path({str(tmp_path / 'log')!r})).peak_mib)"
    )
    told = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True)
    assert 600 < float(told.stdout) < 700


def test_measure_times_are_of_the_whole_process(tmp_path):
    """Work takes processor time, and the wall clock runs on at least as long on one core."""
    usage = measure(python("sum(range(3_000_000))"), tmp_path / "log")
    assert 0.01 < usage.cpu_s <= usage.wall_s * 1.05 + 0.02


def test_measure_output_is_kept(tmp_path):
    """Results and complaints are apart."""
    measure(python("import sys; print('found'); print('hm', file=sys.stderr)"), tmp_path / "a.log")
    assert (tmp_path / "a.log").read_text() == "found\n"
    assert (tmp_path / "a.err").read_text() == "hm\n"


def test_measure_command_that_fails_is_refused(tmp_path):
    """With what it said."""
    with pytest.raises(InputError, match=r"exit code 3\nno more"):
        measure(python("import sys; sys.stderr.write('no more'); sys.exit(3)"), tmp_path / "log")


def test_measure_command_that_is_not_there_is_refused(tmp_path):
    """By its name."""
    with pytest.raises(InputError, match="nowhere: cannot be run"):
        measure([str(tmp_path / "nowhere")], tmp_path / "log")
