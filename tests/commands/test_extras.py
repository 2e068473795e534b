"""The command that installs an extra fits how servetwin was installed."""

import json
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from sim import extras
from sim.extras import how_to_install


class Installed:
    """Stands in for the metadata of an installed package."""

    def __init__(self, record):
        self._record = record

    def read_text(self, name):
        assert name == "direct_url.json"
        return None if self._record is None else json.dumps(self._record)


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A virtual environment in the project's folder, as `make demo` makes it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv/bin/python"))
    (tmp_path / ".venv").mkdir()
    return tmp_path


def records(folder):
    return {
        "editable": {"url": folder.as_uri(), "dir_info": {"editable": True}},
        "copied": {"url": (folder / "my tree").as_uri(), "dir_info": {}},
        "wheel": {"url": (folder / "servetwin-0.1.whl").as_uri(), "archive_info": {}},
        "git": {"url": "https://host/twin", "vcs_info": {"vcs": "git", "commit_id": "1"}},
    }


@pytest.mark.parametrize(
    ("how", "source"),
    [
        ("editable", "-e '.[tune]'"),
        ("copied", "'my tree[tune]'"),
        ("wheel", "'servetwin-0.1.whl[tune]'"),
        ("git", "'servetwin[tune] @ git+https://host/twin'"),
    ],
)
def test_command_names_what_was_installed(environment, monkeypatch, how, source):
    """Relative where the user stands in the folder, else the whole path."""
    record = records(environment)[how]
    monkeypatch.setattr(extras, "distribution", lambda _name: Installed(record))
    assert how_to_install("tune") == f".venv/bin/python -m pip install {source}"


def test_command_from_elsewhere_has_whole_paths(environment, monkeypatch):
    """So it works where it is printed."""
    record = records(environment)["editable"]
    monkeypatch.setattr(extras, "distribution", lambda _name: Installed(record))
    monkeypatch.chdir(environment / ".venv")
    python = "bin/python"
    assert how_to_install("ray") == f"{python} -m pip install -e '{environment}[ray]'"


@pytest.mark.parametrize(
    ("file", "program"),
    [
        ("uv-receipt.toml", "uv tool install"),
        ("pipx_metadata.json", "pipx install --force"),
    ],
)
def test_tools_are_installed_by_the_program_that_made_them(environment, monkeypatch, file, program):
    """Their environments have no pip of their own."""
    record = records(environment)["copied"]
    monkeypatch.setattr(extras, "distribution", lambda _name: Installed(record))
    (environment / ".venv" / file).touch()
    assert how_to_install("tune") == f"{program} 'my tree[tune]'"


def test_environment_without_pip_uses_uv(environment, monkeypatch):
    """`uv venv` makes such environments."""
    record = records(environment)["editable"]
    monkeypatch.setattr(extras, "distribution", lambda _name: Installed(record))
    monkeypatch.setattr(extras, "find_spec", lambda _name: None)
    assert how_to_install("tune") == ("uv pip install --python .venv/bin/python -e '.[tune]'")


def test_sources_that_are_not_installed_are_installed_from_their_folder(monkeypatch):
    """As when PYTHONPATH names them."""

    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "distribution", absent)
    assert how_to_install("tune").endswith("[tune]'")
    assert " -e " in how_to_install("tune")
