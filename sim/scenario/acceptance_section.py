"""The `acceptance` section of a scenario: how many draft tokens the target model accepts."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from sim.core.errors import InputError
from sim.core.paths import located
from sim.engine.acceptance import (
    Acceptance,
    AcceptanceByPosition,
    RecordedAcceptance,
    probability_for,
)
from sim.runlog.json_lines import numbered_lines
from sim.strict_model import KeysError, StrictModel

_Share = Annotated[float, Field(ge=0, le=1)]
_WAYS = ("rate", "mean_length", "by_position", "recorded")


class AcceptanceSection(StrictModel):
    """How often draft tokens are accepted: exactly one of the keys.

    The number is drawn for each request and each place in its output, whatever else is in the
    batch. docs/explanation/speculation.md has examples.
    """

    rate: _Share | None = None
    """The probability that a draft token is accepted if all before it in the step were, whatever
    the number of draft tokens."""
    mean_length: Annotated[float, Field(ge=1)] | None = None
    """Tokens that a step with all its draft tokens yields on average, the one that needs no draft
    included: servers call it the mean acceptance length. At most 1 + the number of draft tokens.
    Each draft token is accepted with the same probability. Unit: tokens."""
    by_position: Annotated[list[_Share], Field(min_length=1, max_length=64)] | None = None
    """For the first draft token of a step, the second, ...: the probability that it is accepted if
    all before it were. One for each draft token."""
    recorded: Annotated[str, Field(min_length=1)] | None = None
    """A file of JSON lines, plain or gzip: `{"rid": "r1", "accepted": [2, 0, 3]}` says how many
    draft tokens each step of a request accepted, in order. After its end a list starts anew. A
    request that is not in the file takes one of the lists."""

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        given = [way for way in _WAYS if getattr(self, way) is not None]
        if len(given) != 1:
            raise KeysError(f"give exactly one of {', '.join(_WAYS)}", *(given or _WAYS))
        return self

    def load(self, num_drafts: int, base_dir: Path) -> Acceptance:
        """What draws the accepted tokens of steps with up to `num_drafts` draft tokens.

        Raises:
            InputError: the section does not fit the number of draft tokens, or the file is bad.
        """
        if self.rate is not None:
            return AcceptanceByPosition([self.rate] * num_drafts)
        if self.mean_length is not None:
            if self.mean_length > 1 + num_drafts:
                raise InputError(
                    f"{self.mean_length:g} is above 1 + {num_drafts} draft tokens",
                    key=("acceptance", "mean_length"),
                )
            share = probability_for(self.mean_length, num_drafts)
            return AcceptanceByPosition([share] * num_drafts)
        if self.by_position is not None:
            if len(self.by_position) != num_drafts:
                raise InputError(
                    f"has {len(self.by_position)} values for {num_drafts} draft tokens",
                    key=("acceptance", "by_position"),
                )
            return AcceptanceByPosition(self.by_position)
        return RecordedAcceptance(_read_counts(located(base_dir, str(self.recorded))))


def _read_counts(path: Path) -> dict[str, list[int]]:
    """The accepted counts of each request of a file."""
    counts: dict[str, list[int]] = {}
    for number, row in numbered_lines(path):
        rid, accepted = row.get("rid"), row.get("accepted")
        if not (isinstance(rid, str) and isinstance(accepted, list) and accepted):
            raise InputError(f"{path}:{number}: needs a rid, and accepted, a list of counts")
        if not all(type(count) is int and 0 <= count <= 1024 for count in accepted):
            raise InputError(f"{path}:{number}: accepted has something else than counts up to 1024")
        counts[rid] = accepted
    if not counts:
        raise InputError(f"{path}: has no lines")
    return counts
