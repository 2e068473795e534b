"""Logs of several real servers of a fleet, each of its own, with a fault planted in one of them."""

import gzip
import json

import pytest

from calibrate.cli import main
from calibrate.explain.logs import AsRecorded
from sim.scenario.load import load_scenario_text
from tests.calibrate.explain.test_planted_faults import SCENARIO, SLOWER, STALLED
from tests.support.made_up_device import USUAL, serve
from tests.support.workloads import scripted


@pytest.fixture
def fleet(tmp_path):
    """Returns a function that serves the traffic of each seed, and returns the folder of the logs.

    `times`: those of the second server; `options`: of all.
    """

    def run(name, times=USUAL, options=(), seeds=(3, 4)):
        folder = tmp_path / name
        for server, seed in enumerate(seeds):
            path = folder / f"server-{server}" / "run.jsonl"
            path.parent.mkdir(parents=True)
            loaded = load_scenario_text(SCENARIO.format(seed=seed), list(options))
            serve(path, loaded, times if server == 1 else USUAL)
            # Beside its log, a server writes other files.
            (path.parent / "workload.jsonl").write_text('{"arrival": 0}\n', encoding="utf-8")
        return folder

    return run


def explained(capsys, before, after):
    assert main(["explain", str(before), str(after), "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_slow_server_of_a_fleet_is_named(fleet, capsys):
    found = explained(capsys, fleet("before"), fleet("after", SLOWER))
    assert found["causes"][0]["name"] in {"decode steps", "prefill steps"}
    assert found["finished"] == [240, 240]
    details = {cause["name"]: cause["detail"] for cause in found["causes"]}
    for name in ("decode steps", "prefill steps"):
        ratios = [float(word) for word in details[name].partition(" times")[0].split(", ")]
        assert ratios[0] == 1.0
        assert ratios[1] > 1.2
    assert (
        abs(found["unexplained_ms"]["ttft_ms"]) < 0.15 * found["causes"][0]["effect_ms"]["ttft_ms"]
    )


def test_the_server_that_stalled_is_named(fleet, capsys):
    found = explained(capsys, fleet("before"), fleet("after", STALLED))
    first = found["causes"][0]
    assert first["name"] == "stalls"
    assert first["detail"].startswith("none -> server 1: 0.70 s at 1.0 s (host)")


@pytest.mark.long
def test_a_setting_of_all_servers_comes_first(fleet, capsys):
    smaller = fleet("after", options=["scheduler.max_total_tokens=5120"])
    found = explained(capsys, fleet("before"), smaller)
    assert found["causes"][0]["name"] == "KV pool"


@pytest.mark.long
def test_other_traffic_of_a_fleet_comes_first(fleet, capsys):
    """With it comes which server had which request, so nothing else differs."""
    found = explained(capsys, fleet("before"), fleet("after", seeds=(6, 7)))
    assert found["causes"][0]["name"] == "traffic"
    assert "router" not in {cause["name"] for cause in found["causes"]}


def test_a_fleet_beside_one_server(fleet, capsys):
    """The log of a server alone, or the folder of one, is a run of one."""
    one = fleet("one", seeds=(3,))
    found = explained(capsys, one, fleet("two"))
    details = {cause["name"]: cause["detail"] for cause in found["causes"]}
    assert details.get("servers", "1 -> 2") == "1 -> 2"
    assert "servers" in details.keys() | set(found["without_effect"])
    same = explained(capsys, one, one / "server-0" / "run.jsonl")
    assert same["causes"] == []
    assert same["before"]["ttft_ms"] == same["after"]["ttft_ms"]


def test_servers_that_are_not_alike_are_refused(fleet, capsys):
    folder = fleet("before")
    other = load_scenario_text(SCENARIO.format(seed=3), ["scheduler.max_running_requests=3"])
    serve(folder / "server-1" / "run.jsonl", other)
    assert main(["explain", str(folder), str(folder)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"calibrate: {folder / 'server-1' / 'run.jsonl'}: its scheduler has")
    assert error.count("\n") == 1


def test_a_folder_without_logs_is_refused(tmp_path, capsys):
    (tmp_path / "notes.jsonl.gz").write_bytes(gzip.compress(b'{"kind": "note"}\n'))
    assert main(["explain", str(tmp_path), str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"calibrate: {tmp_path}: has no run log (*.jsonl, *.jsonl.gz)\n"
    )


def test_requests_that_nobody_recorded_go_to_all_in_turn():
    """The others go where they went; of fewer servers, to one of those that are left."""
    router = AsRecorded({"a": 2, "b": 1})
    three = [None] * 3

    def chosen(rid, servers):
        return router.choose(scripted(rid, (0, 10), output=1).spec, servers)

    assert [chosen(rid, three) for rid in ("a", "x", "b", "y", "z")] == [2, 0, 1, 1, 2]
    assert chosen("a", three[:2]) == 0
