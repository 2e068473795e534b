"""Swept keys and values in words."""

import math

import pytest

from sim.report.figures.key_text import key_label, number_of, setting_text, value_text

KEYS = ("scheduler.fairness.t_ms", "scheduler.chunked_prefill_size", "a.rate_rps", "b.rate_rps")


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("scheduler.fairness.t_ms", None, "∞"),
        ("scheduler.chunked_prefill_size", -1, "∞"),
        ("scheduler.max_total_tokens", None, "none"),
        ("scheduler.chunked_prefill_size", 16384, "16,384"),
        ("x", 1.0, "1"),
        ("x", 0.123456789, "0.123457"),
        ("x", True, "true"),
        ("x", {"kind": "k_lpm", "k": 4}, "k_lpm, k 4"),
        ("x", [1, "a"], '[1, "a"]'),
        ("x", "y" * 50, "y" * 39 + "…"),
    ],
)
def test_value_text_is_what_a_value_means(key, value, text):
    """Without end is infinity where that is meant; long values are cut."""
    assert value_text(key, value) == text


def test_key_label_has_the_shortest_name_and_the_unit():
    """Enough of the path to tell keys apart."""
    assert key_label(KEYS[0], KEYS) == "FAIRNESS_T (ms)"
    assert key_label(KEYS[1], KEYS) == "chunked_prefill_size (tokens)"
    assert key_label(KEYS[3], KEYS) == "b.rate_rps (requests/s)"


def test_setting_text_names_keys_whose_values_do_not_say_enough():
    """A policy's name does; a number does not."""
    setting = {"scheduler.schedule_policy": "lpm", KEYS[0]: 200, KEYS[1]: -1}
    assert setting_text(setting, setting) == "lpm, FAIRNESS_T 200 ms, chunked_prefill_size ∞"


def test_number_of_null_is_infinite_or_unknown():
    """By what the key says of null."""
    assert number_of(KEYS[0], None) == math.inf
    assert math.isnan(number_of("scheduler.max_total_tokens", None))
