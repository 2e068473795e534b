"""Every example of the page of trace formats can be read, and its format is recognised."""

import re
from pathlib import Path

import pytest

from sim.workload import FORMATS
from sim.workload.config import TraceConfig
from sim.workload.traces.read import read_trace, recognise

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "trace-formats.md"
SECTIONS = dict(
    re.findall(
        r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
)
EXAMPLES = [
    (name, example)
    for name, text in SECTIONS.items()
    for example in re.findall(r"(?ms)^```(?:json|csv)\n(.*?)^```", text)
]


def test_page_describes_every_format():
    """A section for each, and an example in each."""
    assert sorted(SECTIONS) == sorted(FORMATS) == sorted({name for name, _ in EXAMPLES})


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_example_is_read_and_recognised(tmp_path, name, example):
    """What is printed on the page is what the reader takes."""
    (tmp_path / "trace").write_text(example)
    assert recognise(tmp_path / "trace") == name
    rows = read_trace(TraceConfig(kind="trace", format=name, path="trace"), tmp_path)
    assert len(rows.output_tokens) >= 1
