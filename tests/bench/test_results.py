"""Tables of results, and the figures in them."""

import json
from dataclasses import asdict

from bench.launches import HEADER, Cost
from bench.launches import cells as launch_cells
from bench.outcomes import dynamo_ttfts_ms, our_ttfts_ms
from bench.peers import cells, header, tables
from bench.results import TABLES, markdown_table, save
from bench.run_race import Result, Runs

SLOW = Runs([4.0, 6.0, 5.0], [4.0, 4.5, 4.2], [300.0, 301.0, 299.0])
QUICK = Runs([2.0, 2.6, 2.5], [2.0, 2.1, 2.0], [100.0, 90.0, 95.0])


def test_cells_ratio_is_our_time_over_each_peers():
    """Of the least and of the middle times; requests per second of the middle ones."""
    result = Result("work", 1000, SLOW, {"a": QUICK, "b": SLOW})
    row = dict(zip(header(["a", "b"]), cells(result), strict=True))
    assert row["servetwin / a (minima, medians, processor)"] == "2.00, 2.00, 2.00"
    assert row["servetwin / b (minima, medians, processor)"] == "1.00, 1.00, 1.00"
    assert (row["servetwin, requests/s"], row["a, requests/s"]) == ("200", "400")
    assert (row["servetwin, MiB"], row["a, MiB"]) == ("301", "100")


def test_tables_races_against_the_same_peers_share_one():
    """In the order of the races; work without requests has a dash for their rate."""
    alone = Result("start-up", 0, QUICK, {})
    raced = Result("work", 1000, SLOW, {"a": QUICK})
    first, second = tables([raced, raced, alone])
    assert [len(first.splitlines()), len(second.splitlines())] == [4, 3]
    assert second.splitlines()[2] == "| start-up | 2.00 / 2.50 | - | 100 |"


def test_cost_of_a_launch_is_its_share_of_all_calls():
    """And that of a request; the fastest run counts in requests per second."""
    cost = Cost("work", requests=100, launches=50, calls=1000, wall_s=0.5, pure_wall_s=2.0)
    row = dict(zip(HEADER, launch_cells(cost), strict=True))
    assert (row["calls a launch"], row["calls a request"]) == ("20", "10")
    assert (row["requests/s"], row["in pure Python"]) == ("200", "50")


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
