"""Tables of results, and the figures in them."""

import json
from dataclasses import asdict

from bench.outcomes import dynamo_ttfts_ms, our_ttfts_ms
from bench.peers import HEADER, cells
from bench.results import TABLES, markdown_table, save
from bench.run_race import Result, Runs

SLOW = Runs([4.0, 6.0, 5.0], [4.0, 4.5, 4.2], [300.0, 301.0, 299.0])
QUICK = Runs([2.0, 2.6, 2.5], [2.0, 2.1, 2.0], [100.0, 90.0, 95.0])


def test_cells_ratio_is_how_much_longer_the_peer_takes():
    """Of the least and of the middle times; requests per second of the middle ones."""
    result = Result("work", 1000, "peer", SLOW, QUICK, SLOW)
    row = dict(zip(HEADER, cells(result), strict=True))
    assert row["compiled: ratio of minima"] == row["compiled: of medians"] == "2.00"
    assert row["pure: ratio of minima"] == row["pure: of medians"] == "1.00"
    assert (row["compiled, requests/s"], row["peer, requests/s"]) == ("400", "200")
    assert (row["compiled, MiB"], row["peer, MiB"]) == ("100", "301")


def test_cells_without_a_peer_or_a_compiled_build_have_dashes():
    """And nothing that would need one."""
    row = dict(zip(HEADER, cells(Result("start-up", 0, "", QUICK, None, None)), strict=True))
    assert (row.pop("work"), row.pop("pure, s"), row.pop("pure, MiB")) == (
        "start-up",
        "2.00 / 2.50",
        "100",
    )
    assert set(row.values()) == {"-"}


def test_save_page_has_the_tables_of_all_tools(tmp_path):
    """Whichever ran last; the machine is named once."""
    save("scaling", [markdown_table(("a", "b"), [("1", "2")])], [], folder=tmp_path)
    page = save("peers", ["races"], [asdict(QUICK)], folder=tmp_path)
    text = page.read_text(encoding="utf-8")
    assert page.name == TABLES
    assert text.index("races") < text.index("| a | b |\n| --- | ---: |\n| 1 | 2 |")
    assert text.count("Measured on: ") == 1
    assert json.loads((tmp_path / "peers.json").read_text())["figures"][0]["wall_s"] == QUICK.wall_s


def test_ttfts_requests_are_the_same_in_both_formats(tmp_path):
    """By arrival and lengths; requests that cannot be told apart are left out."""
    ours, theirs = tmp_path / "ours.csv", tmp_path / "theirs.jsonl"
    ours.write_text(
        "arrival_s,prompt_tokens,output_tokens,ttft_ms\n"
        "2.999,10,5,1.5\n3.0,10,5,2.5\n3.0,20,5,3.5\n3.0,20,5,4.5\n"
    )
    rows = [(2999.0, 10, 11.5), (3000.0, 10, 12.5), (3000.0, 20, 13.5), (3000.0, 20, 14.5)]
    names = ("arrival_time_ms", "input_length", "ttft_ms")
    theirs.write_text(
        "".join(
            json.dumps({**dict(zip(names, row, strict=True)), "output_length": 5}) + "\n"
            for row in rows
        )
    )
    assert our_ttfts_ms(ours) == {(2999, 10, 5): 1.5, (3000, 10, 5): 2.5}
    assert dynamo_ttfts_ms(theirs) == {(2999, 10, 5): 11.5, (3000, 10, 5): 12.5}
