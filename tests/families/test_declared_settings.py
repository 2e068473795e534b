"""A setting that is declared has all that is made of it: flag, way back, meaning, values."""

from dataclasses import fields

import pytest

from reference.field_docs import field_docs
from sim.core.flags import flag_of, split_command
from sim.families import FAMILIES
from sim.sglang.results.settings import facts_of
from sim.sglang.settings import SchedulerSettings as SglangSettings
from sim.validation import launch_keys
from sim.vllm.config import VllmSettings
from tests.support.random_settings import other_values

SETTINGS = {"sglang": SglangSettings, "vllm": VllmSettings}
# They are read into other keys, or only beside others: `test_read_launch.py` has them.
READ_OTHERWISE = {"kv_cache_dtype", "hicache_ratio", "retraction_policy", "speculative_config"}
TOLD = [
    (family, key)
    for family in SETTINGS
    for keys in [launch_keys(FAMILIES[family].section())]
    for key in (*keys.options, *keys.switches, *keys.variables)
    if key not in READ_OTHERWISE
]


def section_with(family, key, value):
    """A section in which only this key is changed, even if it does not go with the others."""
    return FAMILIES[family].section()(family=family).model_copy(update={key: value})


@pytest.mark.parametrize(("family", "key"), TOLD)
def test_launch_command_says_the_setting_and_is_read_back(family, key):
    section = FAMILIES[family].section()
    value = "lpm" if key == "schedule_policy" else other_values(section, key)[0]
    command = FAMILIES[family].launch_command(section_with(family, key, value)).command
    variable = launch_keys(section).variables.get(key)
    said = f"{variable}={value} " if variable else flag_of(key)[1:]
    assert said in command
    found = FAMILIES[family].read_launch(split_command(command, "--server"), "h100_sxm")
    assert (found.unknown, found.ignored) == ((), ())
    assert found.scheduler[key] == value


@pytest.mark.parametrize("family", SETTINGS)
def test_scheduler_gets_every_setting_that_it_declares(family):
    """With the type and default of the key."""
    section = FAMILIES[family].section()
    for field in fields(SETTINGS[family]):
        value = other_values(section, field.name)[0]
        assert section.model_fields[field.name].default == field.default
        assert field_docs(section)[field.name].meaning.endswith("."), field.name
        changed = section_with(family, field.name, value)
        if family == "vllm" and field.name == "enable_chunked_prefill":
            changed = changed.model_copy(update={"max_num_batched_tokens": 10**6})
        assert getattr(changed.config(100_000), field.name) == value


def test_measured_settings_of_sglang_are_its_flags():
    """What a server of SGLang's shows is taken under the same name."""
    shown = {"schedule_policy": "lpm", "scheduler_recv_interval": 4, "clip_max_new_tokens": 7}
    assert facts_of(shown, {}).scheduler == {"schedule_policy": "lpm", "scheduler_recv_interval": 4}
