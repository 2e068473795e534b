"""`calibrate fit MEASURED --scenario SCENARIO` from the command line."""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from pydantic import BaseModel

from calibrate.commands.fit_host import start_of
from calibrate.measured.host_report import scenario_line
from sim.core.errors import InputError
from sim.latency.host import HostTimes, read_host_times
from tests.support.measured_runs import Disturbance

HOST = "latency.host_s=0.002"


@pytest.fixture
def measured(measured_file):
    """A run with host time and noise."""
    return measured_file(HOST, disturbance=Disturbance(noise=0.05))


@pytest.fixture
def refused(refuse, scenario_file):
    """Fit with these arguments, which must fail; returns the one line."""
    return partial(refuse, "fit")


def test_fit_command_writes_host_times_and_says_how_good_they_are(
    calibrate, scenario_file, measured
):
    """The estimate, what it makes better, and what to put into the scenario."""
    code, out, err = calibrate("fit", measured, "--scenario", scenario_file, "-o", "host.json")
    assert code == 0
    times = read_host_times(Path("host.json"))
    data = json.loads(Path("host.json").read_text(encoding="utf-8"))
    about = data["fit"]
    assert abs(times.host_s - 0.002) < 4 * about["host_s_std_error"] < 0.001
    assert times.per_request_s == 0
    assert (about["scenario"], about["measured"]) == ("study", "measured.jsonl.gz")
    assert about["judged"] == {"first": None, "skip": None}
    assert len(about["scenario_hash"]) == 64
    assert about["num_requests"] <= 80
    assert about["objective_after"] < about["objective_before"] / 3
    assert abs(about["after"]["tpot"]["mean_error_pct"]) < 3
    lines = err.splitlines()
    assert len(lines) == about["num_simulations"] <= 25
    assert all(line.startswith("calibrate: simulation ") for line in lines)
    assert "error % of the simulation" in out
    assert f"host time of a step: {times.host_s * 1e3:.4f} ms, ± " in out
    assert out.endswith(
        f"host times: host.json\nin the scenario, under latency: host_s: {times.host_s}\n"
    )


def test_fit_command_same_input_same_file(calibrate, scenario_file, measured):
    """To the byte, and only the requests asked for."""
    command = ("fit", measured, "--scenario", scenario_file, "--first", 40, "-o")
    for name in ("a.json", "b.json"):
        assert calibrate(*command, name)[0] == 0
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()
    about = json.loads(Path("a.json").read_text(encoding="utf-8"))["fit"]
    assert about["judged"] == {"first": 40, "skip": None}
    assert about["num_requests"] <= 40


def test_fit_command_starts_from_the_scenario(calibrate, scenario_file, measured):
    """Its own host time is what it is compared with; measured arrivals may be taken."""
    _, _, err = calibrate(
        "fit", measured, "--scenario", scenario_file, "-o", "host.json",
        "--set", "latency.host_s=0.0015", "--measured-arrivals",
    )  # fmt: skip
    assert err.startswith("calibrate: simulation 1: host 1.5000 ms a step: ")


def test_fit_command_options_of_the_other_kind_are_refused(refused, measured):
    """One line each."""
    for option in (("--set", HOST), ("--first", 3), ("--per-request",), ("--measured-arrivals",)):
        line = refused("run-log.jsonl", "-o", "x.json", *option)
        assert line == f"{option[0]}: only with --scenario"
    for option in ("--per-request", "--measured-arrivals"):
        assert refused(measured, "-o", "x", option) == f"{option}: only with --scenario"
    line = refused(measured, "-o", "x.json", "--scenario", "study.yaml", "--kind", "linear")
    assert line == "--kind: only with results of a benchmark"
    for option in (("--name", "x"), ("--label", "x"), ("--folds", 5), ("--seed", 0)):
        line = refused(measured, "-o", "x.json", "--scenario", "study.yaml", *option)
        assert line == f"{option[0]}: only with run logs, not with --scenario"
    line = refused(measured, "b.jsonl", "-o", "x.json", "--scenario", "study.yaml")
    assert line == "b.jsonl: one measured run at a time, got 2"


def test_fit_command_of_hidden_host_time_is_refused(refused, measured):
    """Whatever the scenario's device times are; kind layers adds its host time in any case."""
    overlap = ("--set", "scheduler.disable_overlap_schedule=false")
    line = refused(measured, "-o", "x.json", "--scenario", "study.yaml", *overlap)
    assert "kind linear: overlap scheduling hides host_s behind the device time" in line


def test_fit_command_simulates_the_scenarios_host(calibrate, scenario_file, measured_file):
    """Its front end delays each request, in every simulation of the fit."""
    front = ("--set", "host.front_end_s=0.05")
    run = measured_file(HOST)
    for options in ((), front):
        calibrate("fit", run, "--scenario", scenario_file, "-o", f"{len(options)}.json", *options)
    ttft = [
        json.loads(Path(f"{number}.json").read_text(encoding="utf-8"))["fit"]["after"]["ttft"]
        for number in (0, 2)
    ]
    assert ttft[1]["mean_error_pct"] > ttft[0]["mean_error_pct"] + 5


def test_fit_command_unusable_input_is_refused(refused, measured):
    """The key or file in one line; nothing is left behind."""
    command = (measured, "--scenario", "study.yaml", "-o")
    assert refused(*command, "x.txt") == "x.txt: expected a name that ends in .json"
    assert refused(*command, "no/x.json") == "no/x.json: its folder no does not exist"
    assert refused(*command, "x.json", "--per-request") == (
        "study.yaml:3: latency: kind linear has no host_per_request_s that could be estimated"
    )
    recorded = "latency={kind: recorded, path: x.jsonl}"
    line = refused(*command, "x.json", "--set", recorded)
    assert line.endswith("kind recorded has no host_s that could be estimated")
    assert refused(*command, "x.json", "--first", 81) == "--first 81: the run has 80 requests"
    assert refused("none.jsonl", *command[1:], "x.json").startswith("none.jsonl: ")
    measured.rename("in.json")
    line = refused("in.json", "--scenario", "study.yaml", "-o", "in.json")
    assert line == "in.json: is an input of the fit: give another file to write"
    assert not list(Path().glob("x*"))


class Layers(BaseModel):
    """A kind of latency that can read host times from a file."""

    kind: str = "layers"
    host_s: float = 0.001
    host_per_request_s: float = 2e-6
    host: str | None = None


@dataclass
class Loaded:
    """The attributes of a loaded scenario that are used."""

    latency: BaseModel
    base_dir: Path = Path("scenarios")

    @property
    def scenario(self):
        return self

    def error(self, path, reason):
        return InputError(f"{'.'.join(path)}: {reason}")


def test_fit_command_names_its_file_where_a_scenario_can_read_it():
    """Relative to the scenario."""
    times = HostTimes(0.002, 0.0)
    assert scenario_line(times, Loaded(Layers()), Path("fits/host.json")) == (
        "in the scenario, under latency: host: ../fits/host.json"
    )


def test_fit_command_starts_from_both_times_where_there_are_two():
    """Unless they are in a file, which is what is to be made."""
    assert start_of(Loaded(Layers()), per_request=True) == HostTimes(0.001, 2e-6)
    with pytest.raises(InputError) as error:
        start_of(Loaded(Layers(host="host.json")), per_request=False)
    assert str(error.value).endswith("--set latency.host=null")
