"""A latency profile with everything in it, as data and on disk."""

import copy
import json

import pytest

ERRORS = {
    "points": 100,
    "mape_pct": 1.0,
    "p50_pct": 0.8,
    "p95_pct": 2.0,
    "max_pct": 3.0,
    "total_pct": 0.1,
    "outliers": 0,
}


def terms(**ns):
    return [{"term": name, "ns": value} for name, value in ns.items()]


def axis(quantity, *knots):
    return {"quantity": quantity, "knots": list(knots)}


def measured(**limits):
    return {name: {"low": low, "high": high} for name, (low, high) in limits.items()}


def device(range_, terms_, axes=(), factors=()):
    correction = {"axes": list(axes), "factors": list(factors)} if axes else None
    return {"range": range_, "terms": terms_, "correction": correction, "errors": ERRORS}


PROFILE = {
    "schema_version": 2,
    "name": "example",
    "label": "made up",
    "fingerprint": {"device": "none", "num_threads": 2},
    "model": "tiny",
    "created_from": [{"file": "a.jsonl", "source": "profile", "points": 300, "steps": 0}],
    "graph_sizes": [1, 2, 4, 8, 64],
    "modes": {
        "extend": device(
            measured(tokens=(16, 8_192), mean_cached=(0, 4_096), prefill_rows=(1, 8)),
            [
                *terms(constant=4e5, tokens=100 / 3, attention=0.07, prefill_rows=3e3 / 7),
                {"term": "tokens", "knee": 184.0, "ns": 5_400.1},
                *terms(cached_tokens=2.9),
            ],
            [axis("tokens", 16, 128, 8_192), axis("mean_cached", 0, 1_000, 4_096)],
            [[1.0, 1.1, 1.2], [0.9, 1.0, 1.05], [1.0, 0.97, 0.99]],
        ),
        "decode": device(
            measured(decode_rows=(1, 256), mean_context=(16, 8_192)),
            [
                *terms(constant=2e5, eager=1e5 / 3, padded_rows=8e3 / 7, decode_rows=0.3),
                {"term": "padded_rows", "knee": 48.0, "ns": 1e4 / 3},
                *terms(decode_context=8.123),
            ],
            [axis("padded_rows", 1, 8, 64, 256), axis("mean_context", 16, 1_000, 8_192)],
            [[1.0, 1.3, 1.1], [0.9, 1.0, 1.07], [1.0, 0.95, 1.0], [1.0, 1.0, 1 / 3]],
        ),
        "mixed": device(
            measured(
                tokens=(16, 8_192),
                mean_cached=(0, 4_096),
                decode_rows=(1, 256),
                mean_context=(16, 8_192),
            ),
            [
                *terms(constant=4e5, attention=0.07, decode_context=8.0),
                {"term": "new_tokens", "knee": 184.0, "ns": 5_400.1},
            ],
        ),
    },
    "host": [
        {
            "scheduling": "normal",
            "modes": {
                mode: {"terms": terms(constant=9e4), "errors": ERRORS}
                for mode in ("extend", "decode", "mixed")
            },
        },
        {
            "scheduling": "overlap",
            "modes": {
                "extend": {"terms": terms(constant=7e4, tokens=0.1), "errors": ERRORS},
                "decode": {
                    "terms": terms(constant=5e4, decode_rows=400 / 3, decode_context=1 / 70),
                    "errors": ERRORS,
                },
            },
        },
    ],
    "launch": {
        "extend": {"terms": terms(constant=2e7, prefill_rows=1e4), "errors": ERRORS},
        "mixed": {"terms": terms(constant=3e7, decode_rows=10.0), "errors": ERRORS},
    },
    "decode_spread": None,
}


@pytest.fixture
def profile_data():
    """The data of a valid profile, which tests change."""
    return copy.deepcopy(PROFILE)


@pytest.fixture
def flat(profile_data):
    """The same without corrections and graphs."""
    for section in profile_data["modes"].values():
        section["correction"] = None
    profile_data["graph_sizes"] = []
    return profile_data


@pytest.fixture
def write(tmp_path):
    """Writes data as a profile into the test's folder; returns the path."""

    def to_disk(data, name="example.json"):
        path = tmp_path / name
        path.write_text(json.dumps(data), encoding="utf-8")
        return path

    return to_disk
