"""Which tokens are drafted and accepted, for both oracles, as in `sim/engine/acceptance.py`."""

from typing import Any

Config = dict[str, Any]

_UINT64 = (1 << 64) - 1
_ACCEPTED_SALT = 0xD1B54A32D192ED03
_PROPOSED_SALT = 0x8CB92BA72F3D8DD7


def num_accepted(config: Config, seed: int, place: int, most: int) -> int:
    """How many of the first `most` drafts after `place` output tokens are accepted."""
    drawn = _drawn(seed, place, _ACCEPTED_SALT)
    at_least, number = 1.0, 0
    for share in config["speculation"]["by_position"][:most]:
        at_least *= float(share)
        if drawn >= at_least:
            break
        number += 1
    return number


def num_proposed(config: Config, seed: int, place: int) -> int:
    """How many tokens are drafted after `place` output tokens."""
    drafts = config["speculation"]
    if "proposed" not in drafts:
        return int(drafts["num_speculative_tokens"])
    drawn = _drawn(seed, place, _PROPOSED_SALT)
    at_most, number = 0.0, 0
    for share in drafts["proposed"][:-1]:
        at_most += float(share)
        if drawn < at_most:
            break
        number += 1
    return number


def _drawn(seed: int, place: int, salt: int) -> float:
    return (_mixed(((seed << 32 | place) ^ salt) + 0x9E3779B97F4A7C15 & _UINT64) >> 11) / 2**53


def _mixed(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _UINT64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _UINT64
    return x ^ x >> 31
