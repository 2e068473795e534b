"""Half an hour of a server that is as its twin says raises no alarm; one that changes does."""

import pytest

from calibrate.watch.twin import WindowTwin
from calibrate.watch.watcher import Watcher
from sim.families import known_metrics
from sim.server_metrics.scrape import read_dump
from tests.calibrate.watch.conftest import Server, watch_dump, write_dump

# A twin that is off as twins are: its steps are 10 % too fast, its prefill 10 % too slow.
OFF = {"step_ms": 18.0, "prefill_us": 110.0}
HEALTHY_S, LATER_S = 300.0, 200.0
# The change is found within two minutes. Windows count from the first scrape's.
SOON_S = HEALTHY_S + 120.0


@pytest.mark.parametrize("family", ["vllm", pytest.param("sglang", marks=pytest.mark.long)])
def test_half_an_hour_of_usual_traffic_raises_no_alarm(watched, family):
    found = watched((Server(family, seed=3, rate_rps=1.5), 1_800.0), twin=Server(family, **OFF))
    assert len(found.windows) == 89
    assert not found.drifts
    (learned,) = [note for _, note in found.notes]
    assert learned.startswith("learned: measured over predicted is usually TTFT ")


@pytest.mark.parametrize(
    ("change", "figure", "cause"),
    [
        ({"step_ms": 40.0, "prefill_us": 200.0}, "TPOT", "slower steps: TPOT is "),
        ({"step_ms": 26.0, "prefill_us": 130.0}, "TPOT", "slower steps: TPOT is 1.3"),
        ({"step_ms": 23.0, "prefill_us": 115.0}, "TPOT", "slower steps: TPOT is 1.1"),
        ({"step_ms": 14.0}, "TPOT", "faster steps"),
        ({"prefill_us": 200.0}, "TTFT", "slower prefill, or a slow front end"),
    ],
)
def test_a_server_that_changes_is_found_within_two_minutes(watched, change, figure, cause):
    found = watched((Server(), HEALTHY_S), (Server(seed=2, **change), LATER_S), twin=Server(**OFF))
    at_s, note = found.drifts[0]
    assert HEALTHY_S < at_s <= SOON_S
    assert note.startswith(f"DRIFT: {figure} ")
    assert f"Likely: {cause}" in note


def test_a_smaller_pool_is_found_within_two_minutes(watched):
    """Its server does not say how large its pool is: only which share of it is in use."""
    usual, smaller = Server(rate_rps=5), Server(rate_rps=5, seed=2, pool_pages=1_000)
    found = watched((usual, HEALTHY_S), (smaller, LATER_S), twin=Server(**OFF))
    at_s, note = found.drifts[0]
    assert HEALTHY_S < at_s <= SOON_S
    assert "Likely: smaller KV pool: a request takes " in note


def test_other_traffic_is_told_and_is_no_drift(watched):
    found = watched((Server(), HEALTHY_S), (Server(seed=2, rate_rps=6), 400.0), twin=Server(**OFF))
    assert not found.drifts
    told = [note for _, note in found.notes if note.startswith("traffic changed: 2.")]
    assert told
    assert all(note.endswith(" requests/s") for note in told)


def later(text, seconds):
    """A dump with all its times so much later."""
    begin, *parts = text.split("# scraped ")
    moved = [part.partition("\n") for part in parts]
    times = [f"{int(at_us) + round(seconds * 1e6)}\n{rest}" for at_us, _, rest in moved]
    return "# scraped ".join([begin, *times])


def test_a_server_that_is_started_anew_explains_a_drift(tmp_path):
    """Its counters begin at 0, and its steps are slower from then on."""
    before = write_dump(tmp_path / "before.txt", (Server(), HEALTHY_S))
    after = write_dump(tmp_path / "after.txt", (Server(seed=2, step_ms=26.0), LATER_S))
    dump = tmp_path / "both.txt"
    dump.write_text(before.read_text() + later(after.read_text(), HEALTHY_S))
    found = watch_dump(dump, Server(**OFF).built())
    restarted = "the server was restarted: its counters began anew"
    assert restarted in [note for _, note in found.notes]
    _, note = found.drifts[0]
    assert f"Likely: another version or other settings: {restarted}" in note


def test_the_same_dump_gives_the_same_windows(tmp_path):
    dump = write_dump(tmp_path / "metrics.txt", (Server(), 120.0))
    once, again = (watch_dump(dump, Server(**OFF).built()) for _ in range(2))
    assert [row.verdicts for row in once.windows] == [row.verdicts for row in again.windows]


def test_time_in_which_nobody_asked_is_in_no_window(tmp_path):
    whole = write_dump(tmp_path / "whole.txt", (Server(), 240.0)).read_text()
    parts = whole.split("# scraped ")
    # After 76 s there is nothing until 160 s.
    left = "# scraped ".join([*parts[:21], *parts[41:]])
    dump = tmp_path / "gap.txt"
    dump.write_text(left)
    found = watch_dump(dump, Server(**OFF).built())
    assert [row.window.seconds for row in found.windows] == [20.0] * 6


def test_a_part_of_an_answer_and_a_clock_that_is_set_back_are_left_out(tmp_path):
    whole = write_dump(tmp_path / "whole.txt", (Server(), 60.0)).read_text()
    begin, *parts = whole.split("# scraped ")
    parts[3] = "\n".join(line for line in parts[3].splitlines() if "_running{" not in line) + "\n"
    dump = tmp_path / "part.txt"
    dump.write_text("# scraped ".join([begin, *parts]))
    scrapes = list(read_dump(dump, known_metrics()))
    server = Server(**OFF).built()
    watcher = Watcher(WindowTwin(server, num_draws=2, seed=1), "vllm", window_s=20, num_learned=6)
    seen = [watcher.take(scrape) for scrape in (*scrapes[:8], scrapes[2], *scrapes[8:])]
    lengths = [len(each.window.arrived) for each in seen if each is not None]
    assert lengths == [4, 5]
