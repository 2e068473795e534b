"""The `acceptance` section of a scenario: how many tokens are drafted and accepted."""

from collections.abc import Iterable
from math import isclose
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from sim.core.errors import InputError
from sim.core.files import located
from sim.core.packed import Line, numbered_lines
from sim.engine.acceptance import (
    Acceptance,
    AcceptanceByPosition,
    RecordedAcceptance,
    probability_for,
)
from sim.validation import KeysError, StrictModel

_Share = Annotated[float, Field(ge=0, le=1)]
_WAYS = ("rate", "mean_length", "by_position", "recorded")


class AcceptanceSection(StrictModel):
    """How often draft tokens are accepted: exactly one of the keys, and perhaps `proposed`.

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
    request that is not in the file takes one of the lists. With method `ngram`, each line may say
    as `proposed` how many tokens were drafted for each of these steps. The log of a real run with
    drafts is such a file."""
    proposed: Annotated[list[_Share], Field(min_length=2, max_length=65)] | None = None
    """With method `ngram`: the share of steps that have no draft token, one, two, ... Together 1.
    Without it, each step has all its draft tokens. In `[0.6, 0, 0, 0.4]`, the lookup finds three
    draft tokens for 40 % of the steps, and none for the others."""

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        given = [way for way in _WAYS if getattr(self, way) is not None]
        if len(given) != 1:
            raise KeysError(f"give exactly one of {', '.join(_WAYS)}", *(given or _WAYS))
        if self.recorded is not None and self.proposed is not None:
            raise KeysError(
                "recorded says what each step proposed; leave proposed out", "proposed", "recorded"
            )
        return self

    @field_validator("proposed")
    @classmethod
    def _check_whole(cls, proposed: list[float] | None) -> list[float] | None:
        if proposed is not None and not isclose(sum(proposed), 1, abs_tol=1e-6):
            raise ValueError(f"shares must add up to 1, got {sum(proposed):g}")
        return proposed

    def load(self, num_drafts: int, base_dir: Path, *, looks_up: bool) -> Acceptance:
        """What draws the accepted tokens of steps with up to `num_drafts` draft tokens.

        With `looks_up`, drafts are looked up, so there may be fewer than `num_drafts`.
        """
        if self.recorded is not None:
            path = located(base_dir, self.recorded)
            return recorded_acceptance(numbered_lines(path), path, looks_up=looks_up)
        if self.proposed is not None:
            self._check_proposed(num_drafts, looks_up=looks_up)
        return AcceptanceByPosition(self._by_position(num_drafts), self.proposed or ())

    def _check_proposed(self, num_drafts: int, *, looks_up: bool) -> None:
        if not looks_up:
            raise InputError("is for method ngram alone", key=("acceptance", "proposed"))
        if len(self.proposed or ()) != 1 + num_drafts:
            raise InputError(
                f"has {len(self.proposed or ())} shares for 0 to {num_drafts} draft tokens",
                key=("acceptance", "proposed"),
            )

    def _by_position(self, num_drafts: int) -> list[float]:
        if self.rate is not None:
            return [self.rate] * num_drafts
        if self.mean_length is not None:
            if self.mean_length > 1 + num_drafts:
                raise InputError(
                    f"{self.mean_length:g} is above 1 + {num_drafts} draft tokens",
                    key=("acceptance", "mean_length"),
                )
            return [probability_for(self.mean_length, num_drafts)] * num_drafts
        by_position = self.by_position or []
        if len(by_position) != num_drafts:
            raise InputError(
                f"has {len(by_position)} values for {num_drafts} draft tokens",
                key=("acceptance", "by_position"),
            )
        return by_position


_MOST = 1024
_KEYS = "accepted", "proposed"
# Those of a run log, whose `accepted` is a sum.
_LOG_KEYS = "accepted_by_step", "proposed_by_step"


def recorded_acceptance(
    rows: Iterable[tuple[int, Line]], path: Path, *, looks_up: bool
) -> RecordedAcceptance:
    """The lists of all requests.

    `rows` are the file's lines with their numbers. Of a run log, only requests count, and of these
    only those that had a step with drafts. With `looks_up`, drafts are looked up, so there may be
    fewer than the server asks for.
    """
    accepted: dict[str, list[int]] = {}
    proposed: dict[str, list[int]] = {}
    for number, row in rows:
        where = f"{path}:{number}"
        kept, found = _LOG_KEYS if "kind" in row else _KEYS
        if "kind" in row and not (row["kind"] == "req" and row.get(kept)):
            continue
        rid = row.get("rid")
        if not isinstance(rid, str) or not row.get(kept):
            raise InputError(f"{where}: needs a rid, and {kept}, a list of counts")
        accepted[rid] = _counts(row, kept, where)
        if found in row:
            proposed[rid] = _counts(row, found, where)
            if len(proposed[rid]) != len(accepted[rid]):
                raise InputError(f"{where}: {found} and {kept} differ in length")
    if not accepted:
        raise InputError(f"{path}: has no lines")
    if proposed and not looks_up:
        raise InputError(
            f"{path}: has numbers of proposed tokens, which are for method ngram alone"
        )
    if proposed and len(proposed) < len(accepted):
        missing = next(rid for rid in accepted if rid not in proposed)
        raise InputError(f"{path}: request {missing} has no proposed, but others have")
    return RecordedAcceptance(accepted, proposed or None)


def _counts(row: Line, key: str, where: str) -> list[int]:
    counts = row[key]
    if not isinstance(counts, list):
        raise InputError(f"{where}: needs a rid, and {key}, a list of counts")
    if not all(type(count) is int and 0 <= count <= _MOST for count in counts):
        raise InputError(f"{where}: {key} has something else than counts up to {_MOST}")
    return counts
