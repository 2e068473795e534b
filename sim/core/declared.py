"""What the declaration of a setting says beside its type: its bounds, its launch flag, its version.

A setting is declared once, as an annotated field of a settings class with its meaning below it:

    retract_decode_steps: Annotated[WholeNumber, Flag(variable="SGLANG_RETRACT_DECODE_STEPS")] = 20
    '''Decode steps for which memory must be free after a retraction. Unit: steps.'''

From it `sim.validation` makes the key of a scenario, what a launch command says and how one is
read, and what is taken from a measured run. `reference` makes its row in the table of keys.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

MAX_COUNT = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A number is at least `ge`, or more than `gt`; at most `le`, or less than `lt`."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """Pydantic asks for this; the engine's packages do without that library."""
        return handler(source) | {key: end for key, end in asdict(self).items() if end is not None}


Count = Annotated[int, Bounds(ge=1, le=MAX_COUNT)]
WholeNumber = Annotated[int, Bounds(ge=0, le=MAX_COUNT)]
Share = Annotated[float, Bounds(ge=0, le=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """How a launch command sets a key: by default with a flag, which is the key with hyphens.

    The flag of a setting that is true or false is a switch, any other one takes a value.

    Attributes:
        flag: there is such a flag. Otherwise the code that writes launch commands sets the key in
            another way, or says that the engine does not have it.
        variable: the environment variable that takes the place of a flag.
        always: the flag is written even if it has the default, because the engine's own default
            depends on the GPU or on the model.
        measured: a measured server's value is taken when its results are imported.
        since: the first version that has it; empty: all versions have it.
    """

    flag: bool = True
    variable: str = ""
    always: bool = False
    measured: bool = True
    since: str = ""


NO_FLAG = Flag(flag=False, measured=False)
NOT_MEASURED = Flag(measured=False)


def entry_for(version: str, entries: Mapping[str, str]) -> str | None:
    """The entry of the last version that is not after `version`.

    What follows a version's third number does not count. `entries` are by the first version that
    they are for, in ascending order.

    Returns the entry; the first one if all are for later versions. None: `version` is not a
    version, for example the name of a nightly build.
    """
    if (wanted := _numbers(version)) is None:
        return None
    found = next(iter(entries.values()))
    for first, entry in entries.items():
        numbers = _numbers(first)
        if numbers is not None and numbers <= wanted:
            found = entry
    return found


def is_version(text: str) -> bool:
    """Whether a text begins with a version's three numbers."""
    return _numbers(text) is not None


def same_version(one: str, other: str) -> bool:
    """Whether two versions have the same three numbers."""
    return is_version(one) and _numbers(one) == _numbers(other)


def _numbers(version: str) -> tuple[int, ...] | None:
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    return None if match is None else tuple(int(number) for number in match.groups())
