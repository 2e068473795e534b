"""Choices between measured servers, and that pages have the figures that kept means give."""

import sys

import numpy as np
import pytest

pytest.importorskip("aiconfigurator_core", reason="pip install -e '.[aiconfigurator]'")

from bench.page import replaced
from silicon import accuracy, confidence, decisions, page
from silicon.bounded import BoundedRow
from silicon.decisions import (
    Alternative,
    Choice,
    alternatives_of,
    by_package,
    by_simulation,
    choices_of,
    result_of,
    tally,
    with_margin,
)
from silicon.facts import Row, load_rows
from silicon.kept import kept
from silicon.scores import Judged, Means
from sim.confidence.measured import ServerPoint

FACTS = {"model": "m", "system": "g", "precision": "fp8", "isl": "100", "osl": "101"}


@pytest.fixture
def boards(monkeypatch):
    """What commands write, instead of writing it: name, table and page."""
    found = []
    for module in (decisions, confidence):
        monkeypatch.setattr(
            module,
            "write_board",
            lambda name, board, page=page.PAGE: found.append((name, board, page)),
        )
    return found


def test_pages_have_what_kept_means_give(boards, monkeypatch):
    """All tables that follow from `silicon/data`; the commands of the page write them anew."""
    monkeypatch.setattr(sys, "argv", ["silicon"])
    decisions.main()
    confidence.main()
    assert [name for name, _, _ in boards] == ["decisions", "accuracy", "confidence"]
    for name, board, path in boards:
        text = path.read_text(encoding="utf-8")
        assert replaced(text, name, board, path) == text, name


def test_scoreboard_is_of_the_kept_means(monkeypatch, tmp_path):
    """So decisions and intervals are those of the servers that the scoreboard judges."""
    before = page.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(page, "PAGE", tmp_path / "hardware.md")
    monkeypatch.setattr(page, "_draw", lambda points: None)
    page.PAGE.write_text(before, encoding="utf-8")
    page.write_page(load_rows(), kept())
    assert page.PAGE.read_text(encoding="utf-8") == before


def alternative(concurrency, measured_tpot, simulated_tpot, bounds=(), engine="vllm"):
    """One GPU; with a TTFT of 0, it gives 10 x concurrency / TPOT in ms requests a second."""
    row = Row("", {**FACTS, "backend": engine, "concurrency": str(concurrency)}, 0, measured_tpot)
    means = [Means(0, tpot) for tpot in (measured_tpot, simulated_tpot)]
    return Alternative(row, 1, *means, None, dict(bounds))


def test_choice_is_judged_by_what_was_measured():
    """With 8 requests the simulation keeps 25 ms, the server does not; with 4 both do."""
    fast, slow = alternative(8, 30, 24), alternative(4, 20, 20)
    choice = Choice(25, [slow, fast])
    assert choice.is_hard
    missed = result_of(choice, by_simulation)
    assert (missed.is_missed, missed.is_best) == (True, False)
    best = result_of(Choice(25, [slow, alternative(8, 30, 26)]), by_simulation)
    assert best == (False, True, False, 0.0)
    assert result_of(choice, by_package).is_none
    assert result_of(choice, by_package).regret == 1.0
    assert slow.per_gpu(slow.measured) == pytest.approx(4 / 2.0 * 101)


def test_five_percent_above_the_limit_are_within_it():
    """And regret is never negative, though the choice has more throughput than the best within."""
    slow = alternative(4, 20, 20)
    near = result_of(Choice(25, [slow, alternative(8, 26, 24)]), by_simulation)
    assert near == (False, False, False, 0.0)
    over = result_of(Choice(25, [slow, alternative(8, 26.3, 24)]), by_simulation)
    assert over.is_missed


def test_regret_is_what_the_best_has_more():
    """The simulation prefers 4 requests at 20 ms, but 3 at 12 ms have a quarter more throughput."""
    choice = Choice(25, [alternative(4, 20, 10), alternative(3, 12, 12)])
    assert result_of(choice, by_simulation).regret == pytest.approx(1 - (4 / 20) / (3 / 12))
    easy = Choice(25, [alternative(4, 20, 20), alternative(3, 20, 20)])
    found = tally([choice, easy], by_simulation)
    assert found[:4] == (0.5, 0.5, 0.0, 0.0)
    assert found.mean_regret == pytest.approx(0.1)
    assert not easy.is_hard


def test_margin_compares_the_bound_with_the_limit():
    """Throughput is still the simulated one; an alternative without a bound is not chosen."""
    bounded = alternative(4, 20, 20, {0.9: 24.0})
    risky = alternative(8, 30, 24, {0.9: 29.0})
    choice = Choice(25, [risky, bounded, alternative(16, 50, 10)])
    assert result_of(choice, with_margin(0.9)).is_best
    assert result_of(choice, by_simulation).is_missed


def said(tpot, factor=None, version="1", **facts):
    row = Row("", {**FACTS, "backend": "vllm", "version": version, **facts}, 0, tpot)
    point = ServerPoint("vllm", "", "", "", "", 8, 1, 100, 101, 1)
    factors = None if factor is None else np.full((3, len(decisions.LEVELS)), factor)
    return BoundedRow(Judged(row, Means(5, tpot), Means(5, 10), None), point, factors)


def test_alternatives_are_engines_parallelisms_and_concurrencies():
    """Runs and versions of one are one; the same server with other lengths is another choice."""
    rows = [said(10, 1.2), said(20, 1.4, version="2"), said(30, tp="2"), said(30, isl="7")]
    one, two, other = alternatives_of(rows)
    assert one.measured == Means(5, 15)
    assert one.bounds_ms[0.9] == pytest.approx(13)
    assert two.bounds_ms == {}
    choices = list(choices_of([one, two, other]))
    assert [choice.limit_ms for choice in choices] == [15, 25, 50, 100]
    assert all(choice.alternatives == [one, two] for choice in choices)


def test_accuracy_has_a_line_for_each_model_gpu_and_engine():
    """Held-out half / both halves; a dash where a half has none."""
    rows = [said(10, split="development"), said(20, split="held-out"), said(8, system="h")]
    *_, first, second = accuracy.board(rows).splitlines()
    assert first == "| m | g | vllm | 1 / 2 | 0% / 0% | 50% / 25% | - | - |"
    assert second.startswith("| m | h | vllm | 0 / 1 | - / 0% | - / 25% |")
