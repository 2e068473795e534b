"""What documents offer is there: make targets, extras, modules, profiles, environment and data."""

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from sim.latency.profile.format import shipped_profiles

REPOSITORY = Path(__file__).parents[2]
DOCUMENTS = [
    *REPOSITORY.glob("*.md"),
    *(REPOSITORY / "docs").rglob("*.md"),
    *(REPOSITORY / folder / "README.md" for folder in ("data", "oracle")),
]
TEXTS = {
    str(path.relative_to(REPOSITORY)): path.read_text(encoding="utf-8")
    for path in DOCUMENTS
    if path.name != "CHANGELOG.md"
}


def offered(pattern):
    """What documents name, each with a document that does."""
    return sorted(
        {name: document for document, text in TEXTS.items() for name in re.findall(pattern, text)}
        .items()
    )  # fmt: skip


@pytest.mark.parametrize(
    ("target", "document"), offered(r"(?m)(?:^|`)make ([a-z][\w-]*)(?:[ `]|$)")
)
def test_make_target_exists(target, document):
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), document


@pytest.mark.parametrize(("extra", "document"), offered(r"(?:\.\[|extra `)(\w+)[\]`]"))
def test_extra_exists(extra, document):
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert extra in project["optional-dependencies"], document


@pytest.mark.parametrize(
    ("module", "document"), offered(r"python -m ((?:sim|bench|reference|silicon|calibrate)[\w.]*)")
)
def test_module_exists(module, document):
    assert find_spec(module) is not None, document


@pytest.mark.parametrize(
    ("profile", "document"), offered(r"shipped profile.*?(?:such as|profile:) `([a-z]\w+/[\w.-]+)`")
)
def test_profile_ships(profile, document):
    assert profile in shipped_profiles(), document


def test_data_are_small_and_described():
    """Each file is in a folder or of a name that README.md has; only our own may be large."""
    folder = REPOSITORY / "data"
    readme = (folder / "README.md").read_text(encoding="utf-8")
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "README.md"]
    # Whole names, and how the names of our servers' folders begin.
    ours = re.compile(r"(h100|h200)/|measured/(vllm-0\.26|sglang-0\.5)")
    of_others = [path for path in files if not ours.match(path.relative_to(folder).as_posix())]
    assert sum(path.stat().st_size for path in of_others) < 1_050_000
    assert sum(path.stat().st_size for path in files) < 33_500_000
    for path in files:
        name = path.relative_to(folder).as_posix()
        folders = (name, "/".join(name.split("/")[:2]), f"`{name.split('/')[0]}`")
        assert any(part in readme for part in folders), name
