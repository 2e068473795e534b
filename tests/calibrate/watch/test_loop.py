"""A whole watch of a server behind a socket, with the figures that it shows itself."""

import csv

import pytest

from calibrate.watch.exporter import Exporter
from calibrate.watch.loop import watch_all
from calibrate.watch.outputs import Outputs
from calibrate.watch.source import Away, Clock, Late, fetch, scrapes
from calibrate.watch.twin import WindowTwin
from calibrate.watch.watcher import Watcher
from sim.core.errors import InputError
from sim.families import known_metrics
from sim.server_metrics.scrape import read_dump
from tests.calibrate.watch.conftest import Server, serving, write_dump

OFF = Server(step_ms=18.0, prefill_us=110.0)
NEVER = "servetwin_watch_drifts_total 0"


def watcher(twin=OFF):
    built = twin.built()
    return Watcher(
        WindowTwin(built, num_draws=2, seed=1),
        built.scheduler.family,
        window_s=20.0,
        num_learned=6,
    )


def texts_of(folder, *parts):
    """The texts of all scrapes."""
    content = write_dump(folder / "metrics.txt", *parts).read_text()
    return [part.partition("\n")[2] for part in content.split("# scraped ")[1:]]


def time_of_scrapes(url, num):
    """As many scrapes of a server, 4 s apart in a time that nobody waits for."""
    now_s = [0.0]

    def sleep(_seconds):
        now_s[0] += 4.0

    clock = Clock(lambda: round(now_s[0] * 1e9), lambda: now_s[0], sleep)
    for _, scrape in zip(range(num), scrapes(url, 4.0, clock=clock), strict=False):
        yield scrape


def test_a_server_behind_a_socket_is_watched_and_its_drift_is_shown(tmp_path):
    texts = texts_of(tmp_path, (Server(), 240.0), (Server(seed=2, step_ms=28.0), 80.0))
    texts[20] = texts[21] = None
    said, lines, shown = [], [], []
    with serving(texts) as url, Exporter("127.0.0.1", 0) as exporter:
        own = f"http://127.0.0.1:{exporter.port}"
        outputs = Outputs(lines.append, out=tmp_path / "out", exporter=exporter, refresh_s=20)

        def look():
            shown.append(fetch(f"{own}/metrics"))
            return ()

        watch_all(
            time_of_scrapes(url, len(texts)), watcher(), outputs, say=said.append, log_changes=look,
            is_live=False,
        )  # fmt: skip
        shown.append(fetch(f"{own}/metrics"))
        page = fetch(f"{own}/")
        assert isinstance(fetch(f"{own}/other"), Away)
    assert said == [
        "the server is away: answers 500 Internal Server Error; still trying",
        "the server is back",
    ]
    (drift,) = [line for line in lines if "DRIFT: TPOT" in line]
    assert "Likely: slower steps" in drift
    assert "servetwin_watch_up 1" in shown[0]
    assert NEVER in shown[-10]
    assert "servetwin_watch_drifts_total 1" in shown[-1]
    assert 'servetwin_watch_drifts{figure="tpot_ms"} 1\n' in shown[-1]
    assert 'servetwin_watch_predicted{figure="ttft_ms"}' in shown[-1]
    assert page == (tmp_path / "out" / "index.html").read_text()
    assert '<meta http-equiv="refresh" content="20">' in page
    assert "Likely: slower steps" in page
    with (tmp_path / "out" / "windows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    # The window around the two scrapes that failed is longer.
    assert [row["seconds"] for row in rows] == ["20"] * 3 + ["28"] + ["20"] * 11
    assert [row["state"] for row in rows][:6] == ["learning"] * 5 + [""]
    assert rows[-1]["state"] == "drift"
    assert float(rows[-1]["tpot_ms_measured"]) > float(rows[-1]["tpot_ms_high"])


def test_while_a_server_is_away_its_watch_says_so_to_prometheus(tmp_path):
    texts = texts_of(tmp_path, (Server(), 12.0))
    with Exporter("127.0.0.1", 0) as exporter:
        outputs = Outputs(lambda _line: None, out=None, exporter=exporter, refresh_s=20)
        with serving([texts[0], None]) as url:
            watch_all(
                time_of_scrapes(url, 2), watcher(), outputs, say=lambda _words: None, is_live=True
            )
        assert "servetwin_watch_up 0" in exporter.metrics


def test_a_server_of_another_engine_than_the_scenarios_is_refused(tmp_path):
    outputs = Outputs(lambda _line: None, out=None, exporter=None, refresh_s=0)
    other = watcher(Server("sglang"))
    with (
        serving(texts_of(tmp_path, (Server("vllm"), 12.0))) as url,
        pytest.raises(InputError, match="is a server of vLLM, but the scenario is of SGLang"),
    ):
        watch_all(time_of_scrapes(url, 2), other, outputs, say=print, is_live=True)


def test_what_else_changes_is_noted_with_the_window(tmp_path):
    lines = []
    outputs = Outputs(lines.append, out=None, exporter=None, refresh_s=0)
    changes = iter([["version 1 → 2"]])
    with serving(texts_of(tmp_path, (Server(), 40.0))) as url:
        watch_all(
            time_of_scrapes(url, 10), watcher(), outputs, say=print,
            log_changes=lambda: next(changes, ()), is_live=False,
        )  # fmt: skip
    assert "00:00:20  version 1 → 2" in lines


def test_a_server_that_answers_late_stood_still(tmp_path):
    """Its own figures may not show it: requests of that time came when it was back."""
    lines = []
    outputs = Outputs(lines.append, out=None, exporter=None, refresh_s=0)
    dump = write_dump(tmp_path / "metrics.txt", (Server(), 80.0))
    found = list(read_dump(dump, known_metrics()))
    late = [Late(1.5, 0.004), Late(1.2, 0.005)]
    watch_all(
        [*found[:8], late[0], found[8], late[1], *found[9:]], watcher(), outputs, say=print,
        is_live=False,
    )  # fmt: skip
    (told,) = [line for line in lines if "stood still" in line]
    words = "the server stood still, or its front end did: it answered after 1.5 s"
    assert told.endswith(f"{words}, usually after 4 ms (2 times)")


def test_a_port_that_is_taken_is_refused():
    with (
        Exporter("127.0.0.1", 0) as exporter,
        pytest.raises(InputError, match=r"^--port \d+: cannot be used on 127\.0\.0\.1: "),
    ):
        Exporter("127.0.0.1", exporter.port)
