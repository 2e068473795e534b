"""Every study has a section in the documentation and a test."""

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (REPOSITORY / "scenarios" / "studies").glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_study_is_described_and_tested(name):
    """Under its own name."""
    sections = (
        (REPOSITORY / "docs" / "explanation" / "studies.md")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    assert f"## {name}" in sections
    assert (REPOSITORY / "tests" / "studies" / f"test_{name.replace('-', '_')}.py").is_file()
