"""The page about published policies: its tables, and what makes them."""

import pytest

from bench.policies import PAGE, SCENARIOS, TABLES, main, row_name, table


def test_every_scenario_has_its_table_and_is_named():
    text = PAGE.read_text(encoding="utf-8")
    assert set(TABLES) == {path.stem for path in SCENARIOS.glob("*.yaml")}
    for name in TABLES:
        assert f"<!-- {name} -->\n\n|" in text, name
        assert f"{name}.yaml" in text


def test_every_policy_is_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    for path in SCENARIOS.glob("*.py"):
        assert f"`{path.name}`" in text


def test_a_table_is_current():
    """The one that is made the fastest."""
    assert table("two-tenants") in PAGE.read_text(encoding="utf-8")


def test_changes_are_against_first_come_first_served_with_the_same_traffic(monkeypatch):
    """And otherwise against the first row."""
    rows = [
        ({"scheduler.schedule_policy": "fcfs", "mean": 1}, [4.0]),
        ({"scheduler.schedule_policy": "fcfs", "mean": 2}, [10.0]),
        ({"scheduler.schedule_policy": "a:B", "mean": 2}, [8.0]),
        ({"sigma": 2}, [5.0]),
    ]
    monkeypatch.setattr("bench.policies.figures", lambda name, columns: rows)
    column = TABLES["guessed-outputs"].columns[1]
    monkeypatch.setitem(TABLES, "made-up", TABLES["two-tenants"]._replace(columns=[column]))
    lines = table("made-up").splitlines()
    assert [line.split("|")[2].strip() for line in lines[2:6]] == ["+0.0", "+0.0", "-20.0", "+25.0"]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"scheduler.schedule_policy": "vtc:VirtualTokenCounter"}, "VirtualTokenCounter"),
        ({"scheduler.fairness": {"kind": "fairness_t", "t_ms": 5}}, "fairness_t, t_ms 5"),
        ({"a.b": {"kind": "m:C", "tenants": {"x": 1}, "late_last": True}}, "C, late_last"),
        ({"workload.predicted_output.sigma": 0.3}, "sigma 0.3"),
    ],
)
def test_row_is_named_by_its_settings(settings, name):
    assert row_name(settings) == name


def test_unknown_table_is_one_line(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["nobody"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("bench: nobody: no such table; there are two-tenants")
