"""Sections whose models are imported or built on first use behave as if they always were."""

import pytest
from pydantic import ValidationError

from sim.scenario.key_locations import Sections
from sim.scenario.load import load_scenario_text
from sim.scenario.schema import Scenario
from sim.scenario.search_sections import SweepSection, TuneSection
from sim.validation import StrictModel


class Part(StrictModel):
    tokens: int


class Whole(StrictModel):
    part: Part | None = None
    other: Part | int = 0


def test_section_loaded_later_is_its_model(valid_text):
    """Values come as they do from the section's own model."""
    scenario = load_scenario_text(valid_text + "sweep: {replicas: [1, 2], seeds: [3]}").scenario
    assert scenario.sweep == SweepSection.model_validate({"replicas": [1, 2], "seeds": [3]})
    assert scenario.tune is None


def test_section_loaded_later_is_in_the_schema():
    """Its keys are in the schema, where the message about a misspelled key looks for near ones."""
    found = Sections.of(Scenario).locate(("tune", "objektive"))
    assert found.path == ("tune", "objektive")
    assert set(found.siblings) == set(TuneSection.model_fields)


def test_validator_of_a_part_is_built_with_its_first_value():
    assert Whole.model_validate({}) == Whole()
    assert "tokens" not in repr(Whole.__pydantic_core_schema__)
    assert Whole.model_validate({"part": {"tokens": 3}}).part == Part(tokens=3)
    assert Whole(part=Part(tokens=3)).model_dump() == {"part": {"tokens": 3}, "other": 0}


def test_error_in_a_part_names_its_key():
    """In a union of several types too, where pydantic's place of the error names the type."""
    data = {"part": {"tokns": 3}, "other": {"tokens": "3"}}
    with pytest.raises(ValidationError) as raised:
        Whole.model_validate(data)
    places = [Sections.of(Whole).locate(each["loc"]) for each in raised.value.errors()]
    assert {place.path for place in places} == {
        ("part", "tokns"), ("part", "tokens"), ("other",), ("other", "tokens"),
    }  # fmt: skip
    assert places[0].siblings == ("tokens",)
