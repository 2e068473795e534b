"""What an unquoted YAML scalar means: YAML 1.2's core types without what surprises people.

Only `true` and `false` are booleans. Only `null`, `~` and an empty scalar are null. Dates, times of
day, `on`, `yes`, `0x10` and `1_000` are text. A number that can be read in two ways, such as `010`,
or in none, such as `.inf`, is an error.
"""

import math
import re

from sim.core.errors import InputError

Scalar = None | bool | int | float | str

_CONSTANTS: dict[str, bool | None] = {
    "": None,
    "~": None,
    "null": None,
    "true": True,
    "false": False,
}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?", re.ASCII)
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|nan)", re.ASCII | re.IGNORECASE)
_NONZERO_MANTISSA = re.compile(r"[-+0.]*[1-9]", re.ASCII)

_MAX_INTEGER = 2**63 - 1
_MAX_INTEGER_DIGITS = 19


def parse_plain_scalar(text: str) -> Scalar:
    """The value of an unquoted scalar.

    Raises:
        InputError: the scalar is a bad number. The message is a reason alone: the caller knows the
            line.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return _parse_integer(text)
    if _LEADING_ZERO.fullmatch(text):
        raise InputError(
            f"{text} begins with a zero: drop the zero if it is a number, quote it if it is text"
        )
    if _FLOAT.fullmatch(text):
        return _parse_float(text)
    if _NOT_FINITE.fullmatch(text):
        raise InputError(f"{text} is not a finite number")
    return text


def _parse_integer(text: str) -> int:
    # Digits are counted first, as Python raises ValueError for thousands of them.
    if len(text.lstrip("+-")) > _MAX_INTEGER_DIGITS or abs(int(text)) > _MAX_INTEGER:
        raise InputError(f"{_shorten(text)} is too large: whole numbers end at 2**63 - 1")
    return int(text)


def _parse_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise InputError(f"{_shorten(text)} is too large for a floating-point number")
    if number == 0.0 and _NONZERO_MANTISSA.match(text):
        raise InputError(f"{_shorten(text)} is too small for a floating-point number")
    return number


def _shorten(text: str) -> str:
    return text if len(text) <= 30 else f"{text[:27]}..."
