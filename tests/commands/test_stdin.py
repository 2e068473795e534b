"""The file `-` is standard input, wherever a command reads a file."""

import gzip
import io
import json
from pathlib import Path

import pytest

import calibrate.cli
from tests.support.result_files import ServedRequest, vllm_bench

MS = 1_000_000
RANGES = "{replicas: {kind: int, min: 1, max: 2}}"


@pytest.fixture
def stdin(monkeypatch):
    """Give these bytes to the command."""

    def give(content):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


@pytest.mark.parametrize(
    "command",
    [("validate",), ("workload",), ("run", "--format", "json"), ("sweep",), ("tune",)],
    ids=lambda command: command[0],
)
def test_scenario_from_stdin_is_the_same(simulate, inline, scenario, stdin, command):
    """Results are named after it, and nothing is called `-`."""
    more = {
        "sweep": ("--set", "sweep={seeds: [1, 2]}"),
        "tune": ("--set", f"tune={{objective: goodput, num_trials: 2, ranges: {RANGES}}}"),
    }.get(command[0], ())
    name, *options = command
    expected = simulate(name, scenario, *options, *more)
    stdin(Path(scenario).read_bytes())
    ended = simulate(name, "-", *options, *more)
    assert ended.code == expected.code == 0
    if name == "run":
        ours, theirs = json.loads(ended.out), json.loads(expected.out)
        assert ours | {"wall_seconds": 0} == theirs | {"wall_seconds": 0}
    else:
        assert ended.out.replace("-: valid", "study.yaml: valid") == expected.out
    assert not Path("-").exists()
    assert Path(f"stdin-{name}").is_dir() is (name in {"sweep", "tune"})


def test_error_in_a_scenario_from_stdin_names_its_line(refused_bare, scenario, stdin):
    stdin(Path(scenario).read_bytes().replace(b"seed: 3", b"sed: 3"))
    assert refused_bare("run", "-") == "-:2: sed: unknown key (did you mean seed?)"


def test_log_from_stdin_may_be_compressed(simulate, scenario, stdin):
    """And is compared with another, or replayed."""
    simulate("run", scenario, "--decisions", "log.jsonl")
    for other in ("log.jsonl", scenario):
        stdin(gzip.compress(Path("log.jsonl").read_bytes()))
        assert simulate("compare", "-", other).out.startswith("all ")


def test_results_from_stdin_are_imported(simulate, stdin):
    """Their format is found by reading them twice."""
    requests = [
        ServedRequest(f"r{k}", k * MS, k * MS, (k + 20) * MS, (k + 60) * MS, (1, 2, k), (1, 2), 2)
        for k in range(3)
    ]
    stdin(vllm_bench(requests).encode())
    assert simulate("import", "-", "--out", "out").code == 0
    assert Path("out/scenario.yaml").exists()


def test_profile_from_stdin_is_shown(stdin, capsys):
    profile = Path(__file__).parents[2] / "calibrate/profiles/example/tiny-cpu.json"
    assert calibrate.cli.main(["show", str(profile)]) == 0
    expected = capsys.readouterr().out
    stdin(profile.read_bytes())
    assert calibrate.cli.main(["show", "-"]) == 0
    assert capsys.readouterr().out == expected
