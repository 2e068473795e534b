"""Tables are fitted to 80 columns: folded headers, then parts below each other."""

from hypothesis import given
from hypothesis import strategies as st

from sim.tables.table import Column, Table, columns_of, fitted

NAMES = ("schedule_policy", "rate_rps")
NUMBERS = ("runs", "TTFT mean ms", "TTFT p99 ms", "TPOT mean ms", "output tokens/s", "hit rate %")


def sweep(*settings, width=13):
    rows = [[*setting, "3", *(["9" * width] * 5)] for setting in settings]
    return Table(columns_of(NAMES, NUMBERS), rows, note="a note")


def test_table_that_fits_is_left_alone():
    table = Table(columns_of(["name"], ["n"]), [["a", "1"]])
    assert [part.text() for part in fitted(table)] == [table.text()]


def test_headers_are_folded_if_that_is_enough():
    """At blanks and underscores, no narrower than the cells; the last lines are side by side."""
    [table] = fitted(sweep(["fcfs", "14"], ["lpm", "16"], width=8))
    assert [line.rstrip() for line in table.lines()[:2]] == [
        "schedule_  rate_            TTFT  TTFT p99      TPOT    output  hit rate",
        "policy     rps    runs   mean ms        ms   mean ms  tokens/s         %",
    ]


def test_parts_repeat_the_columns_that_tell_rows_apart():
    """And the note comes once, at the end."""
    first, second = fitted(sweep(["fcfs", "14"], ["lpm", "16"]))
    assert [line.split()[:2] for line in first.lines()[-2:]] == [["fcfs", "14"], ["lpm", "16"]]
    assert [line.split()[:2] for line in second.lines()[-3:-1]] == [["fcfs", "14"], ["lpm", "16"]]
    assert (first.note, second.lines()[-1]) == ("", "a note")


def test_parts_number_their_rows_if_names_do_not_tell_them_apart():
    """Or if the names alone take more than half of the width."""
    for settings in ((["lpm", "14"], ["lpm", "14"]), (["l" * 45, "14"], ["fcfs", "14"])):
        parts = fitted(sweep(*settings))
        assert len(parts) > 1
        for part in parts:
            assert [row[0] for row in part.cells()] == ["1", "2"]


@given(
    st.lists(st.text("ab _", min_size=1, max_size=24), min_size=1, max_size=12),
    st.integers(0, 4),
    st.integers(1, 40),
    st.integers(20, 90),
)
def test_every_part_fits_and_no_cell_is_lost(headers, num_names, cell_width, width):
    """A part may be wider only if it has a single column beside those that name its rows."""
    columns = [Column(header, is_text=k < num_names) for k, header in enumerate(headers)]
    rows = [
        [f"{place}-{row}".ljust(cell_width, "x") for place in range(len(headers))] for row in "ab"
    ]
    parts = fitted(Table(columns, rows), width)
    found = {cell for part in parts for row in part.cells() for cell in row}
    assert found >= {cell for row in rows for cell in row}
    for part in parts:
        assert part.width <= width or len(part.columns) <= 1 + max(1, num_names)
