"""Measured servers with disaggregated prefill and decode: their facts, scenarios and scoreboard."""

from collections import Counter

import pytest

from sim.scenario.load import load_scenario_text

pytest.importorskip("aiconfigurator_core", reason="pip install -e '.[aiconfigurator]'")

from silicon import page
from silicon.disaggregated import servers_in_words
from silicon.disaggregated_drafts import board, cases, told
from silicon.facts import DISAGGREGATED as DISAGGREGATED_REASON
from silicon.facts import Row, load_rows
from silicon.scenario import scenario_of, scenario_text
from silicon.simulate import RowOutcome, simulate_row

ROWS = list(load_rows().values())
DISAGGREGATED = [row for row in ROWS if row.is_disaggregated_without_drafts]
DRAFTS = [row for row in ROWS if row.is_disaggregated and not row.is_disaggregated_without_drafts]
SMALL = "dsr1_b200_sglang_fp8_disagg_1024x1024_c4_cfg455"
WIDE = "dsr1_gb200_sglang_fp4_disagg_1024x1024_c8192_cfg483"


def row(name):
    return next(row for row in DISAGGREGATED if row.id == name)


def test_disaggregated_rows_are_those_with_known_servers():
    """125 measurements, none of which the other scoreboard has; copies are in the same half."""
    assert len(DISAGGREGATED) == len({row["measurement"] for row in DISAGGREGATED}) == 125
    assert not any(row.is_judged for row in DISAGGREGATED)
    assert Counter(row["split"] for row in DISAGGREGATED) == {"development": 57, "held-out": 68}
    assert Counter(row["backend"] for row in DISAGGREGATED) == {"sglang": 111, "vllm": 14}


def test_disaggregated_rows_have_valid_scenarios():
    """One in ten is loaded here; the command reports what cannot be, with the reason."""
    for one in DISAGGREGATED[::10]:
        scenario = load_scenario_text(scenario_text(one)).scenario
        assert {pool.role for pool in scenario.pools.values()} == {"prefill", "decode"}
        assert scenario.workload.max_concurrency == one.number("concurrency")


def test_disaggregated_flags_reach_the_scenario():
    """SGLang's `--tp-size` counts the GPUs of all ranks; the smaller of two pool sizes is given."""
    pools = scenario_of(row(WIDE))["pools"]
    prefill, decode = pools["prefill"], pools["decode"]
    assert (prefill["replicas"], decode["replicas"]) == (4, 1)
    assert [(role["latency"][key]) for role in (prefill, decode) for key in ("tp", "dp")] == [
        1, 4, 1, 32,
    ]  # fmt: skip
    assert decode["latency"]["moe_a2a_backend"] == "deepep"
    assert prefill["scheduler"]["chunked_prefill_size"] == 65_536
    assert prefill["scheduler"]["max_total_tokens"] == 131_072
    assert "mem_fraction_static" not in prefill["scheduler"]
    assert decode["scheduler"]["num_reserved_decode_tokens"] == 112
    assert "chunked_prefill_size" not in decode["scheduler"]


def test_disaggregated_prefill_steps_take_longer_by_kind_of_server():
    """Ranks cost a gap and all-reduces; attention over all GPUs costs 8-bit weights' tokens."""
    ep = "dsr1_gb300_sglang_fp8_disagg_8192x1024_c256_cfg505"
    wanted = {SMALL: (0.1, 15e-6), WIDE: (0.2, 2.4e-6), ep: (0.2, None)}
    for name, costs in wanted.items():
        pools = scenario_of(row(name))["pools"]
        host = pools["prefill"]["host"]
        assert (host["step_gap_s"], host.get("prefill_token_gap_s")) == costs
        assert "prefill_token_gap_s" not in pools["decode"]["host"]


def test_disaggregated_round_robin_is_by_room_on_a_prefill_server():
    """SGLang 0.5.8 knew no other way there: the flag was given, and is not passed on."""
    assert '"load-balance-method": "round_robin"' in row(WIDE)["prefill"]
    settings = load_scenario_text(scenario_text(row(WIDE))).scenario.pools["prefill"].scheduler
    assert settings["chunked_prefill_size"] == 65_536
    assert "load_balance_method" not in settings


def test_disaggregated_servers_have_words():
    """Groups of the scoreboard."""
    words = {servers_in_words(one, role) for one in DISAGGREGATED for role in ("prefill", "decode")}
    assert servers_in_words(row(SMALL), "prefill") == "sglang, TP attention, fp8"
    assert "sglang, DP attention, DeepEP, 24 to 48 GPUs, fp4" in words
    assert "vllm, DP attention, fp4" in words


def test_disaggregated_row_is_simulated_as_a_user_would():
    """A development row at low load: TPOT within a tenth, TTFT within a half."""
    measured, outcome = row(SMALL), simulate_row(row(SMALL))
    assert outcome.status == "ok"
    assert outcome.tpot_ms == pytest.approx(measured.tpot_ms, rel=0.1)
    assert outcome.ttft_ms == pytest.approx(measured.ttft_ms, rel=0.5)


def test_disaggregated_board_names_coverage_and_reasons(tmp_path, monkeypatch):
    """A row that was not simulated counts, with its reason; the package estimates none of these."""
    target = tmp_path / "page.md"
    target.write_text("before\n<!-- disaggregated -->\nold\n<!-- end of disaggregated -->\nafter\n")
    monkeypatch.setattr(page, "DISAGGREGATED", target)
    small, wide = row(SMALL), row(WIDE)
    outcomes = {
        small.id: RowOutcome(small.id, "ok", None, small.ttft_ms * 1.1, small.tpot_ms * 0.9),
        wide.id: RowOutcome(wide.id, "skipped", "too large"),
    }
    rows = {one.id: one for one in (small, wide)}
    page.write_disaggregated(rows, outcomes)
    text = target.read_text()
    assert "### Development half: 1 of 2 rows" in text
    assert "| sglang, b200_sxm, fp8 | 1 of 1 | 10% / 10% / 10% (+10%) | 10% / 10%" in text
    assert "| 1 | too large |" in text
    assert "package" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    page.write_disaggregated(rows, outcomes)
    assert target.read_text() == text


def test_disaggregated_drafts_are_rows_that_speculated_or_may_have():
    """98 more measurements; no number of the held-out half was used to fit."""
    assert len({row["measurement"] for row in DRAFTS}) == 98
    assert Counter(row["speculated"] for row in DRAFTS) == {"yes": 14, "unknown": 84}
    assert not any(row.is_judged for row in DRAFTS)
    assert len([case for row in DRAFTS for case in cases(row)]) == 14 + 2 * 84


def test_disaggregated_drafts_reach_the_scenario():
    """One in ten; with drafts, decode servers have those of the recipe, and without none."""
    for one in DRAFTS[::10]:
        for case in cases(one):
            scenario = load_scenario_text(scenario_text(case)).scenario
            decode = scenario.pools["decode"].scheduler
            if case.drafts:
                assert decode["speculative_num_steps"] == 2
                assert scenario.acceptance.mean_length == 1.94
            else:
                assert "speculative_algorithm" not in decode
                assert scenario.acceptance is None


def test_disaggregated_drafts_are_told_by_measurements_of_the_same_servers():
    """The faster of two speculated, if they differ by more than runs of one recipe do."""

    def measured(name, tpot_ms, speculated="unknown", concurrency="8"):
        facts = {
            "canonical": "yes",
            "reason": DISAGGREGATED_REASON,
            "prefill": "{}",
            "decode": "{}",
        }
        return Row(name, facts | {"speculated": speculated, "concurrency": concurrency}, 1, tpot_ms)

    rows = [measured("fast", 5), measured("slow", 9), measured("known", 10, "no")]
    assert told(rows) == {"fast": "yes", "slow": "no"}
    assert told([measured("a", 10), measured("b", 11)]) == {"a": "not told", "b": "not told"}
    assert told([measured("a", 5), measured("b", 9, concurrency="16")]).get("a") == "not told"


def test_disaggregated_drafts_board_has_both_ways_of_a_row_that_is_not_told():
    """And the rows that are known, once."""
    known = next(row for row in DRAFTS if row["speculated"] == "yes")
    unknown = next(row for row in DRAFTS if row["speculated"] == "unknown")
    outcomes = {
        case.id: RowOutcome(case.id, "ok", None, case.ttft_ms, case.tpot_ms * 1.1)
        for row in (known, unknown)
        for case in cases(row)
    }
    lines = board([known, unknown], outcomes).splitlines()
    assert [line.split(" | ")[:2] for line in lines[2:]] == [
        ["| yes, by the recipe", "with drafts"],
        ["| not told", "without"],
        ["| not told", "with drafts"],
    ]
    assert all("1 of 1 | 0% / 0% / 0% (+0%) | 10% / 10%" in line for line in lines[2:])
