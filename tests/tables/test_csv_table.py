"""Tables of comma-separated values, and their error lines."""

import gzip

import pytest

from sim.core.errors import InputError
from sim.tables.csv_table import CsvTable, find_table, medians, need_table

TEXT = "layer,tokens,time_us\nembedding,1,2.5\n\nqkv_proj,16,1e1\n"


def write(folder, data, name="dense.csv"):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.mark.parametrize(
    "data",
    [
        TEXT,
        TEXT.replace("\n", "\r\n"),
        "\ufeff" + TEXT,
        TEXT.rstrip("\n"),
        gzip.compress(TEXT.encode(), mtime=0),
    ],
)
def test_table_reads_lf_crlf_and_gzip(tmp_path, data):
    """With or without a byte order mark or a final line end; the file's name does not matter."""
    table = CsvTable(write(tmp_path, data))
    assert table.texts("layer") == ("embedding", "qkv_proj")
    assert table.numbers("tokens") == [1.0, 16.0]
    assert table.numbers("time_us") == [2.5, 10.0]
    assert "tokens" in table
    assert "sequences" not in table


@pytest.mark.parametrize(
    ("data", "column", "message"),
    [
        (TEXT, "sequences", "dense.csv:1: sequences: there is no such column"),
        (TEXT, "layer", "dense.csv:2: layer: must be a number, 0 or more, got 'embedding'"),
        (
            TEXT.replace("1e1", "-1"),
            "time_us",
            "dense.csv:4: time_us: must be a number, 0 or more, got '-1'",
        ),
        (TEXT.replace("2.5", "nan"), "time_us", "must be a number, 0 or more, got 'nan'"),
        (TEXT.replace("2.5", "inf"), "time_us", "dense.csv:2: time_us: must be a number, 0 or"),
        (TEXT.replace("2.5", ""), "time_us", "dense.csv:2: time_us: must be a number, 0 or more"),
        (TEXT.replace(",1e1", ""), "layer", "dense.csv:4: has 2 fields, the header 3"),
        (TEXT.replace("tokens", "layer"), "layer", "dense.csv:1: layer: names two columns"),
        ("layer,tokens\n", "layer", "dense.csv: has no rows"),
        ("", "layer", "dense.csv: has no rows"),
        ('a,b\n"x,1\n', "a", "dense.csv:2: not CSV: unexpected end of data"),
        (b"a,b\n\xff,1\n", "a", "dense.csv:2: byte 5 is not UTF-8"),
        (
            gzip.compress(TEXT.encode(), mtime=0)[:-9],
            "layer",
            "dense.csv: gzip data are cut off or corrupt",
        ),
        (b"\x1f\x8b\x00", "layer", "dense.csv: gzip data are cut off or corrupt"),
    ],
)
def test_table_says_in_one_line_where_it_is_wrong(tmp_path, data, column, message):
    """File, line, column, reason."""
    path = write(tmp_path, data)
    with pytest.raises(InputError) as caught:
        CsvTable(path).numbers(column)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_table_sizes_have_a_least_value(tmp_path):
    """A layer over no tokens was never measured; a fitted factor may be negative."""
    table = CsvTable(write(tmp_path, "tokens,alpha\n0,-3.5\n"))
    with pytest.raises(InputError, match=r":2: tokens: must be a number, 1 or more, got '0'"):
        table.numbers("tokens", low=1)
    assert table.numbers("alpha", low=-float("inf")) == [-3.5]


def test_table_of_a_folder_may_be_packed(tmp_path):
    """The plain file first, then the one with .gz."""
    packed = write(tmp_path, gzip.compress(TEXT.encode()), "dense.csv.gz")
    assert find_table(tmp_path, "dense.csv") == packed
    plain = write(tmp_path, TEXT)
    assert find_table(tmp_path, "dense.csv") == plain
    assert find_table(tmp_path, "moe.csv") is None
    with pytest.raises(InputError, match=r"moe\.csv: no such file, plain or \.gz"):
        need_table(tmp_path, "moe.csv")


def test_repeated_measurements_count_as_their_median():
    """One outlier among three changes nothing."""
    assert medians([("a", 1.0), ("b", 7.0), ("a", 90.0), ("a", 3.0)]) == {"a": 3.0, "b": 7.0}
