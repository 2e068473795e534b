"""Sections whose models are imported on first use behave as if they were imported always."""

from sim.scenario.key_locations import Sections
from sim.scenario.load import load_scenario_text
from sim.scenario.schema import Scenario
from sim.scenario.search_sections import SweepSection, TuneSection


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
