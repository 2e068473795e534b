"""README and other files about the project agree with the package."""

import re
import tomllib
from pathlib import Path

import yaml

from sim import __version__

REPOSITORY = Path(__file__).parents[2]


def test_citation_names_this_version_and_licence():
    """CITATION.cff, pyproject.toml and the package agree."""
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["version"] == __version__
    assert citation["license"] == project["license"] == "Apache-2.0"
    assert "Apache License" in (REPOSITORY / "LICENSE").read_text(encoding="utf-8")


def test_workflow_runs_what_a_user_would_call():
    """The script of .ci, on the oldest Python that is supported."""
    workflow = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    steps = workflow["jobs"]["test"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == ["bash .ci/run"]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [version] = [step["with"]["python-version"] for step in steps if "with" in step]
    assert project["requires-python"] == f">={version}"


def test_no_text_has_marks_of_a_merge():
    """A merge that was not finished leaves lines that begin with seven of the same characters."""
    marks = ("<" * 7 + " ", "=" * 7 + "\n", ">" * 7 + " ")
    texts = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), REPOSITORY / "Makefile"]
    rooms = ("bench", "fuzz", "oracle", "realrun", "sim", "tests")
    texts += [path for room in rooms for path in REPOSITORY.glob(f"{room}/**/*.py")]
    texts += REPOSITORY.glob("oracle/*.md")
    for path in texts:
        with path.open(encoding="utf-8") as lines:
            assert not [line for line in lines if line.lstrip().startswith(marks)], path


def test_no_page_says_a_thing_twice_in_one_place():
    """No table row follows itself, and no long sentence stands twice in one paragraph."""
    sentence_end = re.compile(r"(?<=[.!?])\s+")
    for path in (REPOSITORY / "README.md", *REPOSITORY.glob("docs/**/*.md")):
        previous = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            assert line != previous or not line.startswith("| "), (path, line)
            said = [text for text in sentence_end.split(line) if len(text) > 50]
            assert len(said) == len(set(said)), (path, line)
            previous = line
