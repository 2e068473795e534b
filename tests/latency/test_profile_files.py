"""Profiles on disk: what is read, which profiles are packaged, and what is refused in one line."""

import json
from pathlib import Path

import pytest

from sim.core.errors import InputError
from sim.latency.architectures.model_key import load_model_shape
from sim.latency.config import ProfileLatencyConfig
from sim.latency.kinds.build import build_latency
from sim.latency.profile.format import (
    load_profile,
    parse_profile,
    profile_text,
    read_profile,
    shipped_profiles,
)


def test_profile_text_reads_back_the_same(profile_data, write):
    """Writing what was read, and reading it again, changes nothing; tables have a row a line."""
    profile_data["label"] = "one [ 1 ] of [ 2, 3 ]\nin two lines"
    profile = read_profile(write(profile_data))
    text = profile_text(profile)
    assert parse_profile(text, "again") == profile
    assert profile_text(parse_profile(text, "again")) == text
    assert "[1.0, 1.3, 1.1]" in text


def test_profile_of_version_1_has_no_launch(profile_data, write):
    """Files of before are read as they were."""
    profile_data["schema_version"] = 1
    del profile_data["launch"]
    assert read_profile(write(profile_data)).launch == {}


def test_profile_path_of_a_scenario_is_relative_to_it(profile_data, write, tmp_path):
    """A name that ends in .json is a file, with or without a folder in it."""
    path = write(profile_data)
    config = ProfileLatencyConfig(kind="profile", path="example.json")
    model = build_latency(config, model=None, hardware=None, base_dir=tmp_path)
    assert model.profile.name == "example"
    assert load_profile(str(path), Path("/elsewhere")).name == "example"


def test_profile_shipped_ones_are_found_by_name_and_readable(monkeypatch):
    """Whatever ships can be read, from any folder, and says what it is by name and label."""
    assert "example/tiny-cpu" in shipped_profiles()
    for name in shipped_profiles():
        profile = load_profile(name, Path("/nowhere"))
        assert profile.name == name
        assert profile.label


def test_profile_shipped_names_include_their_folder(profile_data, monkeypatch, tmp_path):
    """`h200/tiny` is `profiles/h200/tiny.json`; other files are no profiles."""
    folder = tmp_path / "profiles" / "h200"
    folder.mkdir(parents=True)
    (folder / "tiny.json").write_text(json.dumps(profile_data), encoding="utf-8")
    (folder / "README.md").write_text("", encoding="utf-8")
    monkeypatch.setattr("sim.latency.profile.format.files", lambda package: tmp_path)
    assert list(shipped_profiles()) == ["h200/tiny"]
    assert load_profile("h200/tiny", Path()).name == "example"
    with pytest.raises(
        InputError, match=r"latency.path: unknown profile 'h20/tiny' \(did you mean h200/tiny\?"
    ):
        load_profile("h20/tiny", Path())


def test_profile_missing_file_is_named(tmp_path):
    """The path, and that it is not there."""
    with pytest.raises(InputError, match=r"absent\.json: cannot be read: No such file"):
        load_profile("absent.json", tmp_path)


def decode(data):
    return data["modes"]["decode"]


FAULTS = {
    "another version": (
        lambda data: data.update(schema_version=3),
        r"schema_version: 3 is not 1 or 2, the versions this servetwin reads",
    ),
    "no version": (lambda data: data.pop("schema_version"), r"schema_version: is missing"),
    "missing key": (lambda data: data.pop("fingerprint"), r"fingerprint: is missing"),
    "missing coefficient": (
        lambda data: decode(data)["terms"][1].pop("ns"),
        r"modes\.decode\.terms\.1\.ns: is missing",
    ),
    "unknown key": (lambda data: data.update(shoe_size=44), r"shoe_size: unknown key"),
    "unknown mode": (
        lambda data: data["modes"].update(verify=decode(data)),
        r"modes\.verify: Input should be",
    ),
    "no mode": (lambda data: data.update(modes={}), r"modes: Dictionary should have at least 1"),
    "not a number": (
        lambda data: decode(data)["terms"][0].update(ns=float("nan")),
        r"modes\.decode\.terms\.0\.ns: Input should be a finite number",
    ),
    "negative coefficient": (
        lambda data: decode(data)["terms"][0].update(ns=-1.0),
        r"modes\.decode\.terms\.0\.ns: Input should be greater than or equal to 0",
    ),
    "factor of nothing": (
        lambda data: decode(data)["correction"]["factors"][0].__setitem__(0, 0.0),
        r"modes\.decode\.correction\.factors\.0\.0: Input should be greater than 0",
    ),
    "unsorted grid": (
        lambda data: decode(data)["correction"]["axes"][1].update(knots=[16, 16, 20]),
        r"modes\.decode\.correction\.axes\.1: the knots of mean_context must rise",
    ),
    "table of another shape": (
        lambda data: decode(data)["correction"]["factors"].pop(),
        r"modes\.decode\.correction: factors must be 4 rows of 3",
    ),
    "other axes": (
        lambda data: decode(data)["correction"]["axes"].reverse() or squeeze(data),
        r"modes\.decode\.correction\.axes: must be padded_rows and mean_context",
    ),
    "unsorted graphs": (
        lambda data: data.update(graph_sizes=[4, 2]),
        r"graph_sizes: must rise from one to the next",
    ),
    "unknown term": (
        lambda data: decode(data)["terms"][1].update(term="padded_row"),
        r"modes\.decode\.terms\.1\.term: unknown term 'padded_row' \(did you mean padded_rows",
    ),
    "launch of context": (
        lambda data: data["launch"]["mixed"]["terms"].append({"term": "context", "ns": 1.0}),
        r"launch\.mixed\.terms\.2\.term: unknown term 'context'",
    ),
    "knee where none can be": (
        lambda data: decode(data)["terms"][0].update(knee=3.0),
        r"modes\.decode\.terms\.0\.knee: constant cannot have one",
    ),
    "range without a feature": (
        lambda data: decode(data)["range"].pop("mean_context"),
        r"modes\.decode\.range: mean_context: is missing",
    ),
    "unknown host term": (
        lambda data: data["host"][0]["modes"]["extend"]["terms"][0].update(term="queue"),
        r"host\.0\.modes\.extend\.terms\.0\.term: unknown term 'queue'",
    ),
    "no host time": (
        lambda data: [host["modes"].pop("mixed", None) for host in data["host"]],
        r"host: has no times for mixed steps",
    ),
}


def squeeze(data):
    correction = decode(data)["correction"]
    correction["factors"] = [list(row) for row in zip(*correction["factors"], strict=True)]


@pytest.mark.parametrize("fault", FAULTS)
def test_profile_fault_is_one_line_that_names_file_and_key(profile_data, write, fault):
    """No traceback, no paragraph."""
    change, message = FAULTS[fault]
    change(profile_data)
    with pytest.raises(InputError, match=rf"example\.json: {message}") as caught:
        read_profile(write(profile_data))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "7", '{"schema_version": true}', "[" * 9_999])
def test_profile_what_is_no_profile_is_refused(tmp_path, text):
    """Other JSON, no JSON, and endless JSON."""
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"other\.json: "):
        read_profile(path)


def test_profile_bytes_that_are_no_text_are_refused(tmp_path):
    """A compressed profile is none."""
    path = tmp_path / "packed.json"
    path.write_bytes(b"\x1f\x8b\xff")
    with pytest.raises(InputError, match=r"packed\.json: gzip data are cut off"):
        read_profile(path)


def test_profile_of_another_model_is_refused(profile_data, write, tmp_path):
    """What was measured on one model says nothing of another."""
    write(profile_data)
    config = ProfileLatencyConfig(kind="profile", path="example.json")
    tiny, gpt2 = load_model_shape("tiny", tmp_path), load_model_shape("gpt2", tmp_path)
    build_latency(config, model=tiny, hardware=None, base_dir=tmp_path)
    with pytest.raises(InputError, match="was measured on tiny, the scenario's model is gpt2"):
        build_latency(config, model=gpt2, hardware=None, base_dir=tmp_path)
