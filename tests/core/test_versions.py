"""Which of the known versions stands for a server's."""

import pytest

from sim.sglang import version_rules as sglang
from sim.sglang.read_launch import rules_taken
from sim.vllm import version_rules as vllm


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.5.1.post1", "0.5.1"), ("0.5.2", "0.5.1"), ("0.4.10", "0.5.1"), ("0.5.3rc1", "0.5.9"),
        ("v0.5.6.post2", "0.5.9"), ("0.5.9", "0.5.9"), ("0.5.10.post1", "0.5.10"),
        ("0.5.13", "0.5.10"), ("0.5.14", "0.5.17"), ("0.5.21", "0.5.17"), ("0.5.22", "0.5.22"),
        ("0.5.23", "0.5.23"), ("0.6.0", "0.5.23"), ("nightly-dev-20260216", None), ("", None),
    ],
)  # fmt: skip
def test_sglang_version_has_the_rules_of_a_known_one(version, expected):
    """Numbers are compared as numbers; the oldest stands for all before it."""
    assert sglang.version_with_rules_of(version) == expected
    assert expected is None or expected in sglang.VERSIONS


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.9.2", "0.10.2"), ("0.11.0", "0.10.2"), ("0.12.0", "0.11.2"), ("0.18.1", "0.14.0"),
        ("0.19.1", "0.19.0"), ("0.32.1", "0.19.0"), ("0.33.0", "0.33.0"),
        ("0.40.0", "0.33.0"), ("nightly", None),
    ],
)  # fmt: skip
def test_vllm_version_has_the_rules_of_a_known_one(version, expected):
    """The same, and the newest stands for all after it."""
    assert vllm.version_with_rules_of(version) == expected


@pytest.mark.parametrize(
    ("version", "model", "has_drafts", "expected"),
    [
        ("0.5.15", "Qwen/Qwen3-32B", False, "0.5.17"), ("0.5.15", "Qwen/Qwen3-32B", True, "0.5.23"),
        ("0.5.22", "openai/gpt-oss-20b", False, "0.5.23"),
        ("0.5.9", "openai/gpt-oss-20b", False, "0.5.9"), ("0.5.9", "Qwen/Qwen3-32B", True, "0.5.9"),
        ("main", "openai/gpt-oss-20b", True, None),
    ],
)  # fmt: skip
def test_sglang_rules_taken_are_the_newest_where_others_lack_a_part(
    version, model, has_drafts, expected
):
    """Drafts and pools of windows are simulated with the newest rules alone."""
    assert rules_taken(version, model, has_drafts=has_drafts) == expected
