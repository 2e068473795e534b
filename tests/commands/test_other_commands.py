"""`simulate validate`, `workload`, `demo` and help."""

import json
from pathlib import Path

from sim.cli import main

HEAVY = {"pandas", "matplotlib", "pyarrow", "rich", "scipy", "torch"}
FOR_SIMULATIONS = {"numpy", "pydantic", "simpy", "yaml"}


def test_validate_good_scenario_says_what_it_holds(simulate, trace_scenario, listing):
    """One line on stdout; nothing is run and nothing written."""
    before = listing()
    ended = simulate("validate", "study.yaml", "--set", "replicas=2")
    assert ended == (0, "study.yaml: valid; 3 requests, 2 replicas\n", "")
    assert listing() == before


def test_validate_looks_into_the_trace(refused_bare, trace_scenario):
    """A scenario whose trace is bad is not in order."""
    Path("trace.jsonl").write_text('{"timestamp": 0}\n', encoding="utf-8")
    assert refused_bare("validate", "study.yaml") == "trace.jsonl:1: input_length: missing"


def test_workload_describes_the_traffic(simulate, trace_scenario):
    """Counts, lengths, and what an endless cache of whole prompts would hit."""
    ended = simulate("workload", "study.yaml", "--format", "json")
    assert (ended.code, ended.err) == (0, "")
    stats = json.loads(ended.out)
    assert stats["num_requests"] == 3
    assert stats["span_s"] == 0.09
    assert stats["input_tokens"]["total"] == 1400
    assert stats["input_tokens"]["max"] == 700
    assert stats["output_tokens"]["total"] == 18
    # Only the second prompt begins like an earlier one: one block of five, 512 tokens of 1400.
    assert stats["block_hit_pct"] == 20.0
    assert abs(stats["token_hit_pct"] - 100 * 512 / 1400) < 1e-9


def test_workload_table_shows_the_same(simulate, trace_scenario):
    """Names in words, one line each."""
    ended = simulate("workload", "study.yaml")
    assert (ended.code, ended.err) == (0, "")
    lines = [line.split() for line in ended.out.splitlines()]
    assert ["num", "requests", "3"] in lines
    assert ["input", "tokens", "total", "1,400"] in lines


def test_demo_shows_the_trade_off_bending_and_draws_it(capsys, folder):
    """At the knee LPM's hit rate is nearly there, and the tail is still first come first served's.

    Beyond it the slowest requests, the cold ones above all, wait longer for hardly any hit.
    """
    assert main(["demo", "--out", str(folder / "pictures")]) == 0
    shown = capsys.readouterr().out
    [picture] = (folder / "pictures").iterdir()
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert shown.endswith(f"picture: {picture}\n")
    assert "The knee is at 200 ms" in shown
    cells = [line.split() for line in shown.splitlines()[3:10]]
    rows = {row[0]: [float(cell.replace(",", "")) for cell in row[1:]] for row in cells}
    assert list(rows) == ["0", "50", "100", "200", "300", "500", "∞"]
    hits, p99, cold_max = ({t: row[column] for t, row in rows.items()} for column in (0, 3, 8))
    assert hits["200"] - hits["0"] > 0.75 * (hits["∞"] - hits["0"]) > 2
    assert p99["200"] < 1.05 * p99["0"]
    assert p99["∞"] > 1.3 * p99["200"]
    assert cold_max["∞"] > 1.5 * cold_max["200"]
    assert rows["∞"][-1] == 0


def test_help_loads_no_library_but_its_own(python):
    """It answers at once: what a command needs is loaded when the command runs."""
    code = "import sys; from sim.cli import main; main({}); print(*sys.modules, file=sys.stderr)"
    outputs = ["--set", "--out", "--decisions", "--requests", "--perfetto", "--check"]
    for arguments, words, unwanted in (
        (["--help"], ["Usage: simulate"], HEAVY | FOR_SIMULATIONS),
        (["run", "--help"], outputs, HEAVY),
    ):
        shown = python("-c", code.format(arguments), COLUMNS="100")
        assert shown.code == 0
        assert all(word in shown.out for word in words)
        loaded = {name.partition(".")[0] for name in shown.err.split()}
        assert "typer" in loaded
        assert not loaded & unwanted
