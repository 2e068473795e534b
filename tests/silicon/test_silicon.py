"""The scoreboard of measured servers: its rows, their scenarios, its figures, its command."""

import json
import math
import sys

import pytest

from sim.scenario.load import load_scenario_text

pytest.importorskip("aiconfigurator_core", reason="pip install -e '.[aiconfigurator]'")

from silicon import __main__ as command
from silicon import page
from silicon.facts import Row, load_rows
from silicon.kept import kept
from silicon.scenario import ACCEPTED, scenario_of, scenario_text
from silicon.scores import Judged, Means, errors, tau
from silicon.simulate import RowOutcome, simulate_row
from silicon.speculation import board, by_key

ROWS = load_rows()
KEPT = kept()
JUDGED = [row for row in ROWS.values() if row.is_judged]
DENSE = "qwen_qwen3_32b_qwen_qwen3_32b_h100_sxm_sglang_agg_4096x512_c16_tp8_epnone_73"
SIMULATED = [
    DENSE,
    "qwen3_5_b300_sglang_fp8_agg_8192x1024_c4_cfg716",
    "2026_04_06_llama_3_1_70b_h200_sxm_vllm_fp8_agg_8192x1024_c8_tp4_ep1_656",
    "2026_03_25_minimax_m2_5_b200_sxm_vllm_fp8_agg_1024x1024_c8_tp2_0_ep1_0_1297",
]


def test_population_is_the_published_one():
    """1,576 distinct measurements; each is in one half, and so are all its copies."""
    assert len(JUDGED) == len({row["measurement"] for row in JUDGED}) == 1_576
    halves = {}
    for row in ROWS.values():
        assert halves.setdefault(row["measurement"], row["split"]) == row["split"]
    assert set(halves.values()) == {"development", "held-out"}


def test_every_judged_row_has_a_valid_scenario():
    """One in twenty is loaded here; the command reports what cannot be, with the reason."""
    for row in JUDGED[::20]:
        scenario = load_scenario_text(scenario_text(row)).scenario
        assert scenario.scheduler.family == row["backend"]
        assert scenario.workload.max_concurrency == row.number("concurrency")


def test_flags_at_a_concurrency_reach_the_scenario():
    """Qwen3.5 on B200 polled its queue every 10 steps at concurrency 4 and every 30 at 16."""
    intervals = {
        row.number("concurrency"): scenario_of(row)["scheduler"]["scheduler_recv_interval"]
        for row in JUDGED
        if row["measurement"] and "Qwen3.5" in row["model"] and row["version"] == "0.5.9"
        and (row["system"], row["isl"], row["tp"]) == ("b200_sxm", "1024", "8.0")
    }  # fmt: skip
    assert (intervals[4], intervals[16]) == (10, 30)


def test_servers_that_speculated_are_judged_apart():
    """57 rows of two models, in both halves; each has a scenario with drafts."""
    groups = by_key(ROWS)
    assert set(groups) == set(ACCEPTED)
    groups = {key: rows for key, rows in groups.items() if not rows[0].is_disaggregated}
    rows = [row for group in groups.values() for row in group]
    assert len(rows) == 57
    assert not any(row.is_judged for row in rows)
    assert {row["split"] for row in rows} == {"development", "held-out"}
    for row in rows[::8]:
        scheduler = load_scenario_text(scenario_text(row)).scenario.scheduler
        assert scheduler.drafts.num_tokens == row.drafts
    slow = next(row for row in rows if row.number("concurrency") == 4)
    assert " 1 of 1 | " in board({f"{slow['model']} {slow.drafts}": [slow]})


@pytest.mark.parametrize("name", SIMULATED)
def test_row_is_simulated_as_a_user_would(name):
    """Development rows of both engines: both means within 15 % of the measured ones.

    They are the means that are kept, and the measured ones are inside their intervals.
    """
    row = ROWS[name]
    outcome = simulate_row(row)
    assert outcome.status == "ok"
    assert outcome.ttft_ms == pytest.approx(row.ttft_ms, rel=0.15)
    assert outcome.tpot_ms == pytest.approx(row.tpot_ms, rel=0.15)
    assert outcome.ttft_ms == pytest.approx(KEPT[name].ttft_ms, rel=1e-6)
    assert outcome.tpot_ms == pytest.approx(KEPT[name].tpot_ms, rel=1e-6)
    assert outcome.ttft_low_ms < row.ttft_ms < outcome.ttft_high_ms
    assert outcome.tpot_low_ms < row.tpot_ms < outcome.tpot_high_ms


def judged(measured, simulated, **facts):
    row = Row("id", {"osl": "11", "concurrency": "2", **facts}, *measured)
    return Judged(row, Means(*measured), Means(*simulated), None)


def test_errors_are_relative_to_the_measurement():
    """TTFT 50 % too high and 10 % too low; the package gave no estimate."""
    points = [judged((100, 10), (150, 10)), judged((100, 10), (90, 10))]
    assert errors(points, "TTFT") == pytest.approx((0.3, 0.3, 0.46, 0.2))
    assert errors(points, "TPOT") == pytest.approx((0, 0, 0, 0))
    assert errors(points[:1], "throughput").bias == pytest.approx(200 / 250 - 1)
    assert math.isnan(errors(points, "TTFT", of_package=True).median)


def test_tau_compares_the_points_of_one_server():
    """Two servers in one group: each is in perfect order, whatever the other's times are."""
    points = [
        judged((t, 1), (t * factor, 1), model=model)
        for model, factor in (("a", 1.0), ("b", 9.0))
        for t in (1, 2, 3)
    ]
    assert tau(points, "TTFT") == pytest.approx(1.0)
    assert math.isnan(tau(points[:2], "TTFT"))


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["silicon", *map(str, arguments)])
    monkeypatch.setattr(command.os, "cpu_count", lambda: 1)
    command.main()


def test_command_writes_a_line_for_each_id_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    """A row that cannot be judged is skipped with its reason; a second call simulates nothing."""
    reason = "prefill and decode on different servers"
    skipped = next(
        row.id for row in ROWS.values() if row["reason"] == reason and not row.is_disaggregated
    )
    ids, out = tmp_path / "ids", tmp_path / "out.jsonl"
    ids.write_text(f"{DENSE}\n\n{skipped}\n")
    run(monkeypatch, "--rows", ids, "--out", out)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["id"] for line in lines] == [DENSE, skipped]
    assert lines[0]["status"] == "ok"
    assert lines[0]["wall_s"] > 0
    assert (lines[1]["status"], lines[1]["reason"]) == ("skipped", reason)
    monkeypatch.setattr("silicon.simulate.simulate_row", None)
    run(monkeypatch, "--rows", ids, "--out", out)
    assert len(out.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("ids", "kept", "message"),
    [
        ("no-such-row\n", None, "ids:1: no-such-row: no SGLang or vLLM row has this id"),
        (None, None, "ids: cannot be read"),
        (f"{DENSE}\n", "{}\n", "out.jsonl:1: not an outcome of a row"),
    ],
)
def test_command_bad_input_is_one_line(tmp_path, monkeypatch, capsys, ids, kept, message):
    """An unknown id, a file that is not there, a file of something else."""
    if ids is not None:
        (tmp_path / "ids").write_text(ids)
    if kept is not None:
        (tmp_path / "out.jsonl").write_text(kept)
    with pytest.raises(SystemExit, match="2"):
        run(monkeypatch, "--rows", tmp_path / "ids", "--out", tmp_path / "out.jsonl")
    stderr = capsys.readouterr().err
    assert message in stderr
    assert stderr.count("\n") == 1


def test_page_has_both_halves_and_every_reason(tmp_path, monkeypatch):
    """The tables, the pictures, and the rows that were not simulated."""
    outcomes = {
        row.id: RowOutcome(row.id, "ok", None, row.ttft_ms * 1.1, row.tpot_ms)
        for row in JUDGED[:-1]
    }
    outcomes[JUDGED[-1].id] = RowOutcome(JUDGED[-1].id, "skipped", "no room")
    target = tmp_path / "hardware.md"
    target.write_text("# Title\n<!-- scoreboard --> old <!-- end of scoreboard -->\nmore\n")
    monkeypatch.setattr(page, "PAGE", target)
    monkeypatch.setattr(page, "_PICTURES", tmp_path)
    page.write_page(ROWS, outcomes)
    text = target.read_text()
    assert "old" not in text
    assert text.endswith("more\n")
    assert "### Development half" in text
    assert "### Held-out half" in text
    assert "| 1 | no room |" in text
    assert "10% / 10% / 10% (+10%)" in text
    assert (tmp_path / "hardware.png").stat().st_size > 10_000
