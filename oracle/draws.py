"""Which draft tokens are accepted, for both oracles: `sim/engine/acceptance.py` draws the same."""

from typing import Any

_UINT64 = (1 << 64) - 1
_SALT = 0xD1B54A32D192ED03


def num_accepted(config: dict[str, Any], seed: int, place: int, most: int) -> int:
    """How many of the first `most` drafts after `place` output tokens are accepted."""
    drawn = (_mixed(((seed << 32 | place) ^ _SALT) + 0x9E3779B97F4A7C15 & _UINT64) >> 11) / 2**53
    at_least, number = 1.0, 0
    for share in config["speculation"]["by_position"][:most]:
        at_least *= float(share)
        if drawn >= at_least:
            break
        number += 1
    return number


def _mixed(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _UINT64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _UINT64
    return x ^ x >> 31
