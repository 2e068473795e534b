"""The reference in docs/reference says what the code says."""

from pathlib import Path

import pytest

from reference.field_docs import field_docs
from reference.key_layout import PAGES
from reference.keys import described_models
from reference.pages import reference_pages
from sim.scenario.schema import Scenario
from sim.sglang.section.scheduler import DEFAULT_MEM_FRACTION_STATIC
from sim.vllm.version_rules import NEWEST, VERSIONS
from sim.workload.config import DEFAULT_BLOCK_SIZE

DOCS = Path(__file__).parents[2] / "docs"
MODELS = [model for page in PAGES for section in page.sections for model in section.models]


@pytest.fixture(scope="module")
def pages_now():
    """What the code makes of them, in a terminal as narrow as this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "30")
        return reference_pages()


def test_reference_pages_are_what_the_code_makes_of_them(pages_now):
    """After a change: `make docs`, or `python -m reference`."""
    kept = {path: (DOCS / path).read_text(encoding="utf-8") for path in pages_now}
    assert kept == pages_now


@pytest.mark.parametrize("folder", ["reference/keys", "reference/commands"])
def test_reference_has_no_page_that_the_code_does_not_make(folder, pages_now):
    """A page of a section that is gone does not stay behind."""
    found = {str(path.relative_to(DOCS)) for path in (DOCS / folder).iterdir()}
    assert found == {path for path in pages_now if path.startswith(folder)}


def models_of(schema):
    """Names of all models of a JSON schema; sections that are imported late are nested in it."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" and "properties" in schema:
            yield schema["title"]
        for part in schema.values():
            yield from models_of(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from models_of(part)


def test_reference_describes_every_model_of_a_scenario_and_no_other():
    """A new section has to be given its place in `reference.key_layout`."""
    assert described_models() == set(models_of(Scenario.model_json_schema()))


def test_every_key_has_a_description():
    """In sentences, below the field."""
    for model in MODELS:
        docs = field_docs(model)
        for name in model.model_fields.keys() - {"kind"}:
            assert docs[name].meaning.endswith((".", "...")), f"{model.__name__}.{name}"


@pytest.mark.parametrize(
    ("page", "default"),
    [
        ("scheduler-sglang", DEFAULT_MEM_FRACTION_STATIC),
        ("scheduler-vllm", VERSIONS[NEWEST].gpu_memory_utilization),
        ("workload", DEFAULT_BLOCK_SIZE),
    ],
)
def test_values_that_stand_in_for_null_are_documented(page, default):
    """Fallbacks that are no defaults of the schema are said too."""
    text = (DOCS / "reference" / "keys" / f"{page}.md").read_text(encoding="utf-8")
    assert f"{default} without it" in text
