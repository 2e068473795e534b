"""Rules and defaults in which vLLM's versions differ (docs/explanation/vllm.md)."""

import pytest

from sim.vllm.config import VllmConfig
from sim.vllm.section.scheduler import VllmSection
from sim.workload.workload import listed
from tests.support.serve import serve
from tests.support.workloads import scripted


def num_rows(version, *, async_scheduling, max_model_len=8192):
    """Decode rows of a request of five tokens: four, and those for nothing."""
    config = VllmConfig(
        version=version, async_scheduling=async_scheduling, max_model_len=max_model_len
    )
    served = serve(listed([scripted("a", (1, 100), output=5)]), config)
    assert served.request("a")["output_tokens"] == 5
    return sum(step["n_decode"] for step in served.steps)


@pytest.mark.parametrize(
    ("version", "ahead", "expected"),
    [("0.10.2", True, 5), ("0.10.2", False, 4), ("0.11.2", True, 4), ("0.33.0", True, 4)],
)
def test_row_whose_last_token_is_in_flight(version, ahead, expected):
    """0.10.2 does not foresee that a row ends by its limit."""
    assert num_rows(version, async_scheduling=ahead) == expected


def test_row_that_reaches_the_model_length_is_foreseen_in_every_version():
    """Beyond it there is no place to compute a token for."""
    assert num_rows("0.10.2", async_scheduling=True, max_model_len=105) == 4


@pytest.mark.parametrize(
    ("version", "ahead", "reserves"),
    [
        ("0.33.0", True, True),
        ("0.19.0", True, True),
        ("0.14.0", True, False),
        ("0.11.2", False, False),
        ("0.10.2", False, False),
    ],
)
def test_defaults_of_a_version(version, ahead, reserves):
    """What is given wins."""
    section = VllmSection.model_validate({"family": "vllm", "version": version})
    config = section.config(4096)
    assert (config.async_scheduling, config.scheduler_reserve_full_isl) == (ahead, reserves)
    given = section.model_copy(update={"async_scheduling": not ahead})
    assert given.config(4096).async_scheduling is not ahead


@pytest.mark.parametrize(
    "settings",
    [
        {"version": "0.19.0", "watermark": 0.1},
        {"version": "0.19.0", "prefill_schedule_interval": 2},
        {"version": "0.14.0", "scheduler_reserve_full_isl": True},
        {"version": "0.10.2", "scheduling_policy": "priority"},
        {"version": "0.10.2", "enable_chunked_prefill": False},
    ],
)
def test_what_a_version_does_not_have_is_refused(settings):
    """By name of the version."""
    with pytest.raises(ValueError, match=settings["version"]):
        VllmSection.model_validate({"family": "vllm", **settings})
