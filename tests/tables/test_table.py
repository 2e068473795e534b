"""Tables as text, HTML and CSV, and numbers in them."""

import math

import pytest

from sim.core.errors import InputError
from sim.tables.table import (
    Coloured,
    Column,
    Table,
    aligned,
    columns_of,
    number,
    number_as,
    table_of_rows,
    yes_or_no,
)


def test_table_aligns_columns_as_wide_as_their_cells():
    """Flush left, then flush right; a rule as wide as all; wide characters count as two."""
    rows = [["a", "1"], ["日本", "22,222"], ["e\u0301x", "-"]]
    assert Table(columns_of(["name"], ["n"]), rows).lines() == [
        "name        n",
        "─" * 13,
        "a           1",
        "日本   22,222",
        "e\u0301x          -",
    ]


def test_aligned_columns_have_their_minimum_widths():
    """Others are as wide as they must be; a line ends with its last letter."""
    assert aligned([["a", "b", "c"]], gap=1, right={1}, min_widths=[0, 4, 0]) == ["a    b c"]
    assert aligned([["a", "b", ""]], gap=2, right=set()) == ["a  b"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (12_345, "12,345"), (0.0, "0.00"), (1.234, "1.23"), (12.34, "12.34"),
     (123.45, "123.5"), (1_234.5, "1,234"), (-5.0, "-5.00")],
)  # fmt: skip
def test_number_has_three_digits_or_more(value, text):
    """Whole numbers in full, others rounded."""
    assert number(value) == text


def test_number_as_and_yes_or_no_have_a_dash_for_what_is_undefined():
    """Whatever the format."""
    assert (number_as("+.2f", 1.234), number_as(".3f", None)) == ("+1.23", "-")
    assert (yes_or_no(True), yes_or_no(False), yes_or_no(None)) == ("yes", "no", "-")


def test_table_header_has_as_many_lines_as_its_longest_cell():
    """Cells of fewer lines end above; the rule is as wide as the columns that have a value."""
    columns = [Column("T"), Column("TTFT ms\nmean", to_text=number), Column("", is_text=True)]
    table = Table(columns, [[1, 2.5, ""], ["∞", None, ""]])
    assert table.lines() == [
        "T   TTFT ms",
        "       mean",
        "─" * 11,
        "1      2.50",
        "∞         -",
    ]


def test_table_without_headers_has_rows_alone_and_a_note_is_wrapped():
    """No rule; the note is as wide as the table."""
    table = Table([Column(is_text=True), Column(is_text=True)], [["name", "x"]], note="one two th")
    assert table.lines() == ["name   x", "one two", "th"]
    assert table.text() == "name   x\none two\nth\n"


def test_table_html_escapes_texts_and_marks_those_that_may_wrap():
    """Numbers are flush right by default; long texts may be broken into lines."""
    table = Table(
        columns_of(["a<b"], ["n"]), [["x" * 61, Coloured("+1", "green")]], "Title & more", "A note."
    )
    assert table.html() == (
        '<h2>Title &amp; more</h2>\n<div class="scroll"><table>\n'
        '<thead><tr><th class="text">a&lt;b</th><th>n</th></tr></thead>\n<tbody>\n'
        f'<tr><td class="text wide">{"x" * 61}</td><td>+1</td></tr>\n</tbody>\n</table></div>\n'
        '<p class="facts">A note.</p>'
    )


def test_table_csv_has_values_as_they_are(tmp_path):
    """Undefined is empty; booleans, lists and mappings are JSON; floats keep every digit."""
    rows = [
        {"a": 0.1 + 0.2, "b": None, "c": True},
        {"a": math.nan, "b": [1, "x"], "c": {"k": None}},
    ]
    table_of_rows(rows).write_csv(tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_bytes() == (
        b'a,b,c\n0.30000000000000004,,true\n,"[1, ""x""]","{""k"": null}"\n'
    )


def test_table_csv_that_cannot_be_written_is_refused(tmp_path):
    """One line that names the file."""
    with pytest.raises(InputError, match=r"no/a\.csv: its folder .* does not exist"):
        table_of_rows([{"a": 1}]).write_csv(tmp_path / "no" / "a.csv")
