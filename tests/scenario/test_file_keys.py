"""Paths in options are meant from where the user stands; those in a scenario from its folder."""

from pathlib import Path

import pytest

from sim.core.errors import InputError
from sim.scenario.build import build
from sim.scenario.load import load_scenario


@pytest.fixture
def scenario(tmp_path, monkeypatch, valid_text):
    """`scenarios/mine.yaml`, and some files beside that folder; the user stands above it."""
    monkeypatch.chdir(tmp_path)
    for folder in ("scenarios", "tables", "Qwen/Qwen2.5-0.5B"):
        Path(folder).mkdir(parents=True)
    Path("traffic").touch()
    path = Path("scenarios/mine.yaml")
    path.write_text(valid_text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("override", "keys", "expected"),
    [
        ("workload={kind: trace, format: mooncake, path: t.jsonl}", "workload.path", "../t.jsonl"),
        ("workload={kind: trace, format: mooncake, path: traffic}", "workload.path", "../traffic"),
        ("workload={kind: trace, format: mooncake, path: /t.jsonl}", "workload.path", "/t.jsonl"),
        ("latency={kind: layers, path: tables, host: h.json}", "latency.path", "../tables"),
        ("latency={kind: layers, path: tables, host: h.json}", "latency.host", "../h.json"),
        ("latency={kind: profile, path: example/tiny-cpu}", "latency.path", "example/tiny-cpu"),
        ("latency={kind: profile, path: scenarios/p.json}", "latency.path", "p.json"),
        ("model=Qwen/Qwen3-32B", "model", "Qwen/Qwen3-32B"),
        ("model=Qwen/Qwen2.5-0.5B", "model", "../Qwen/Qwen2.5-0.5B"),
        ("host=sglang-0.5.10", "host", "sglang-0.5.10"),
        ("scheduler.engine=tables", "scheduler.engine", "../tables"),
        ("sweep={workload.path: [a.csv, /b.csv]}", "sweep.workload.path", ["../a.csv", "/b.csv"]),
    ],
)
def test_path_in_an_option_is_from_the_current_folder(scenario, override, keys, expected):
    """Names of packaged data, ids and absolute paths stay."""
    section, _, key = keys.partition(".")
    raw = load_scenario(scenario, [override]).raw[section]
    assert (raw[key] if key else raw) == expected


def test_path_in_an_option_from_the_scenarios_own_folder_stays(scenario, monkeypatch):
    """There both mean the same."""
    monkeypatch.chdir("scenarios")
    override = "workload={kind: trace, format: mooncake, path: t.jsonl}"
    assert load_scenario("mine.yaml", [override]).raw["workload"]["path"] == "t.jsonl"


def test_path_in_an_option_leads_through_a_linked_folder(scenario, tmp_path):
    """The folder of the scenario may be a link to elsewhere."""
    (tmp_path / "deep/er").mkdir(parents=True)
    Path("linked").symlink_to(tmp_path / "deep/er", target_is_directory=True)
    path = Path("linked/mine.yaml")
    path.write_bytes(scenario.read_bytes())
    override = "workload={kind: trace, format: mooncake, path: traffic}"
    loaded = load_scenario(path, [override])
    assert (loaded.base_dir / loaded.scenario.workload.path).samefile("traffic")


def test_error_about_a_path_in_an_option_names_it_as_given(scenario):
    """And not by the way from the scenario's folder."""
    override = "workload={kind: trace, format: mooncake, path: none.jsonl}"
    with pytest.raises(InputError, match=r"^none\.jsonl: "):
        build(load_scenario(scenario, [override]))
