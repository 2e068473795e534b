"""docs/explanation/profile.md agrees with the code."""

import re
from pathlib import Path

from sim.latency.profile.format import MODE_NAMES, LatencyProfile
from sim.latency.profile.quantities import MODE_TERMS

TEXT = (Path(__file__).parents[2] / "docs" / "explanation" / "profile.md").read_text(
    encoding="utf-8"
)


def table(heading):
    """Rows of the table below a heading, as lists of cells."""
    section = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_profile_document_names_the_terms_of_every_mode():
    """In the order in which they are summed, with the one that may have a knee."""
    documented, knees, mode = {}, {}, ""
    for first, term, _ in table("Device time"):
        mode = first or mode
        documented.setdefault(mode, []).extend(re.findall(r"`(\w+)`", term))
        if "knee" in term:
            knees[mode] = documented[mode][-1]
    for forward_mode, terms in MODE_TERMS.items():
        assert tuple(documented[MODE_NAMES[forward_mode]]) == terms.device
        assert knees[MODE_NAMES[forward_mode]] == terms.knee


def test_profile_document_names_every_key():
    """The keys of the file, in its order."""
    keys = [key for row in table("The file") for key in re.findall(r"`(\w+)`", row[0])]
    assert keys == list(LatencyProfile.model_fields)
