"""The command: a recorded dump at full speed, and what it refuses in one line."""

from pathlib import Path

import pytest

from calibrate.cli import main
from tests.calibrate.watch.conftest import Server, write_dump


@pytest.fixture
def scenario(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("watched.yaml").write_text(Server(step_ms=18.0).scenario())
    return "watched.yaml"


@pytest.fixture
def dump(tmp_path):
    return str(write_dump(tmp_path / "metrics.txt", (Server(), 58.0)))


def refused(capsys, *given):
    assert main(["watch", *given]) == 2
    out, err = capsys.readouterr()
    assert not out
    (line,) = err.splitlines()
    assert line.startswith("calibrate: ")
    return line


def test_a_dump_is_watched_at_full_speed(scenario, dump, capsys):
    assert main(["watch", scenario, "--replay", dump, "--out", "seen", "--draws", "2"]) == 0
    headings, first, second = capsys.readouterr().out.splitlines()
    assert headings.startswith("UTC       req/s  TTFT ms  predicted ")
    assert first.split()[0] == "09:33:40"
    assert second.endswith("  learning")
    page = Path("seen/index.html").read_text()
    assert "http-equiv" in page
    assert "refresh" not in page
    assert len(Path("seen/windows.csv").read_text().splitlines()) == 3


def test_either_a_server_or_a_dump(scenario, dump, capsys):
    both = refused(capsys, scenario, "--replay", dump, "--url", "http://localhost:1")
    assert both == refused(capsys, scenario)
    assert both.endswith("give either --url, a server, or --replay, a recorded dump")


def test_bad_input_is_refused_in_one_line(scenario, dump, capsys):
    def line(*given):
        return refused(capsys, scenario, *given)

    assert "--url localhost: must be an address" in line("--url", "localhost")
    assert "--url : must be an address" in line("--url", "")
    assert line("--replay", dump, "--every", "2").endswith(
        "--every: goes with --url; a dump has its own times"
    )
    assert "--host: goes with --port" in line("--replay", dump, "--host", "localhost")
    assert "missing.txt: cannot be read" in line("--replay", "missing.txt")
    assert ":1: comes before the first line `# scraped TIME`" in line("--replay", scenario)
    assert "missing.log: cannot be read" in line("--replay", dump, "--log", "missing.log")
    assert "--window: must not be shorter" in line(
        "--url", "http://localhost:1", "--window", "1", "--every", "5"
    )
    assert f"{dump}: is a server of vLLM, but the scenario is of SGLang" in line(
        "--replay", dump, "--set", "scheduler={family: sglang, max_total_tokens: 4096}"
    )
    assert "is a file, expected a folder" in line("--replay", dump, "--out", scenario)
    assert f"{dump}: ends before its first window of 60 s" in line(
        "--replay", dump, "--window", "60"
    )


def test_scenarios_that_cannot_be_watched_are_refused(scenario, dump, capsys):
    growing = "autoscale={rule: {kind: constant, replicas: 2}, max_replicas: 3}"
    assert "autoscale" in refused(capsys, scenario, "--replay", dump, "--set", growing)
