"""The page of results that others published."""

from pathlib import Path

import pytest

from silicon.published import routers, storage, tiers
from silicon.published.commands import board, outcome_of, published
from silicon.published.stacks import published_loads, row_of, simulated_loads

PAGE = Path(__file__).parents[2] / "docs/published.md"


@pytest.mark.parametrize(
    ("source", "numbers"),
    # DeepSeek-R1 at 16 and 100 requests at a time, a model with images, a result without a GPU;
    # Llama-3.3-70B at 2 requests/s, and ShareGPT.
    [("sglang-cookbook", (7, 8, 36, 49)), ("datacrunch-h200", (1, 5))],
)
def test_page_has_these_results(source, numbers):
    page = PAGE.read_text(encoding="utf-8")
    lines = list(published(source))
    outcomes = [outcome_of(lines[number][0], is_copy=lines[number][1]) for number in numbers]
    rows = [line for line in board(outcomes).splitlines() if line.startswith("| ")]
    assert [row for row in rows if row not in page] == []
    assert len(rows) == 1 + sum(outcome.simulated is not None for outcome in outcomes)
    assert any(outcome.simulated is None for outcome in outcomes)


def test_copies_of_a_result_are_named():
    copies = [line["file"] for line, is_copy in published("sglang-cookbook") if is_copy]
    assert len(copies) == 12
    assert "docs/autoregressive/Moonshotai/Kimi-K2.6.md" in copies


@pytest.mark.parametrize("stack", ["aibrix_naive", "aibrix_naive_prefix_routing"])
def test_page_has_these_loads_of_stacks(stack):
    """The first ones: loads are simulated one after another, without clearing caches."""
    page = PAGE.read_text(encoding="utf-8")
    loads = simulated_loads(stack, published_loads()[stack][:5])
    assert len(loads) == 5
    assert [row for row in map(row_of, loads) if row not in page] == []


def test_page_has_these_loads_of_tiers():
    """Those without CPU memory, of which many steps are simulated at once."""
    page = PAGE.read_text(encoding="utf-8")
    clients = tiers.simulated_clients(has_host=False)
    (first,) = tiers.simulated_stages(1, has_host=False)
    for load, means in (("45 clients", clients), ("5/s", first)):
        assert tiers.row_of(load, means, has_host=False) in page


@pytest.mark.parametrize("router", ["precise", "random"])
def test_page_has_this_load_of_routers(router):
    page = PAGE.read_text(encoding="utf-8")
    (row,) = routers.rows_of(router, routers.simulated(router, 1))
    assert row in page


@pytest.mark.long
@pytest.mark.time_limit(900)
@pytest.mark.parametrize("has_storage", [False, True])
def test_page_has_the_first_load_of_storage(has_storage):
    found = storage.simulated(50_000, has_storage=has_storage)
    row = storage.row_of(50_000, found, has_storage=has_storage)
    assert row in PAGE.read_text(encoding="utf-8")


def test_page_has_all_rows_of_storage():
    page = PAGE.read_text(encoding="utf-8")
    for prefix_tokens, both in storage.MEASURED.items():
        for has_storage, measured in enumerate(both):
            row = storage.row_of(prefix_tokens, measured, has_storage=bool(has_storage))
            assert row.split("|")[1:4] in [line.split("|")[1:4] for line in page.splitlines()]
