"""Measured and simulated requests are paired by name, and all others are listed."""

import numpy as np
import pytest

from calibrate.measured.pairs import Selection, join
from sim.core.errors import InputError


def test_join_pairs_by_name_whatever_the_order(stamps, simulated):
    """Rows are in measured order of arrival."""
    measured = stamps(("a", 0, 10, 50, 5), ("b", 1, 11, 51, 5))
    pairs = join(measured, simulated(("b", 1, 12, 61, 5), ("a", 0, 9, 40, 5)), Selection())
    assert pairs.rid == ["a", "b"]
    assert pairs.measured.finish_ns.tolist() == [50_000_000, 51_000_000]
    assert pairs.simulated.finish_ns.tolist() == [40_000_000, 61_000_000]
    assert (pairs.num_judged, len(pairs)) == (2, 2)
    assert pairs.differing("output_tokens") == {}


def test_join_names_everybody_who_is_not_compared(stamps, simulated):
    """Either side may lack a request or have failed it; each is named once in its own list."""
    measured = stamps(
        ("both", 0, 1, 2, 3),
        ("lost", 1, 2, 3, 3),
        ("failed", 2, 3, None, 3),
        ("refused", 3, 4, 5, 3),
        ("hopeless", 4, None, None, 0),
    )
    log = simulated(
        ("both", 0, 1, 2, 4),
        ("failed", 2, 3, 4, 3),
        ("refused", 3, None, None, 0),
        ("hopeless", 4, None, None, 0),
        ("stranger", 5, 6, 7, 3),
        status=["finished", "finished", "rejected", "aborted", "finished"],
    )
    pairs = join(measured, log, Selection())
    assert pairs.rid == ["both"]
    assert pairs.only_measured == ["lost"]
    assert pairs.only_simulated == ["stranger"]
    assert pairs.failed_measured == ["failed", "hopeless"]
    assert pairs.failed_simulated == {"refused": "rejected", "hopeless": "aborted"}
    assert pairs.differing("output_tokens") == {"both": (3, 4)}
    assert pairs.differing("prompt_tokens") == {}
    assert pairs.num_judged == 5


def test_join_takes_the_first_by_arrival_or_all_but_them(stamps, simulated):
    """Both selections together are all requests; others are not reported as missing."""
    rows = [(f"r{i}", i, i + 1, i + 2, 3) for i in range(5)]
    measured, log = stamps(*rows), simulated(*rows)
    first, rest = (join(measured, log, s) for s in (Selection(first=2), Selection(skip=2)))
    assert first.rid == ["r0", "r1"]
    assert rest.rid == ["r2", "r3", "r4"]
    assert first.only_simulated == rest.only_simulated == []


@pytest.mark.parametrize(
    ("selection", "line"),
    [
        (Selection(first=1, skip=1), "--first and --skip: give one of the two"),
        (Selection(first=3), "--first 3: the run has 2 requests"),
        (Selection(skip=2), "--skip 2: leaves none of the run's 2 requests"),
    ],
)
def test_selection_that_does_not_fit_is_refused(stamps, selection, line):
    """One line."""
    with pytest.raises(InputError) as error:
        selection.rows(stamps(("a", 0, 1, 2, 3), ("b", 0, 1, 2, 3)))
    assert str(error.value) == line


def test_latencies_follow_the_published_definitions(stamps, simulated):
    """TTFT from arrival, TPOT over the tokens after the first, latency to the last token."""
    rows = [("a", 5, 15, 55, 5), ("one", 5, 15, 15, 1), ("none", 5, None, 25, 0)]
    pairs = join(stamps(*rows), simulated(*rows), Selection())
    latencies = pairs.measured.latencies_ms()
    assert latencies["latency"].tolist() == [50, 10, 20]
    assert latencies["ttft"][:2].tolist() == [10, 10]
    assert latencies["tpot"][:2].tolist() == [10, 0]
    assert np.isnan([latencies["ttft"][2], latencies["tpot"][2]]).all()
