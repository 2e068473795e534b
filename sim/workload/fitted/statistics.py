"""What is kept of a trace: lengths, gaps, and how requests share prompts. No text and no ids."""

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from sim.core.errors import InputError
from sim.core.packed import read_json_object
from sim.validation import StrictModel, check
from sim.workload import MAX_REQUESTS, MAX_TOKENS

FORMAT: Final = "servetwin-fitted-1"
_MAX_CELLS, _MAX_LEVELS = 10_000, 200

_Levels = Field(strict=False, min_length=1, max_length=_MAX_LEVELS)
_Seconds = Annotated[float, Field(ge=0, le=1e9)]
_Tokens = Annotated[float, Field(ge=0, le=MAX_TOKENS)]


class Cell(StrictModel):
    """Requests that are alike. Lists are levels: sorted, equally frequent, means of requests."""

    share: Annotated[float, Field(ge=0, le=1)]
    """The share of all requests. Unit: share."""
    is_fresh: bool
    """Whether these begin something new: they stand in for requests of other cells whose pause is
    longer than the traffic has lasted."""
    shared_blocks: Annotated[tuple[_Tokens, ...], _Levels]
    """Full blocks at the beginning of the prompt that an earlier prompt has. Unit: blocks."""
    run_share: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], _Levels]
    """How much of these blocks nobody used after the request that used the last of them. Unit:
    share."""
    pause_s: Annotated[tuple[_Seconds, ...], _Levels]
    """Time since the last of these blocks was last used. Unit: s."""
    new_tokens: Annotated[tuple[_Tokens, ...], _Levels]
    """The rest of the prompt. Unit: tokens."""
    output_tokens: Annotated[tuple[_Tokens, ...], _Levels]
    """The answer. Unit: tokens."""


class TrafficStatistics(StrictModel):
    """A trace's statistics, as a file of JSON."""

    format: Literal["servetwin-fitted-1"]
    """The version of the format."""
    block_size: Annotated[int, Field(ge=1, le=1 << 20)]
    """Tokens of a block. Unit: tokens."""
    num_requests: Annotated[int, Field(ge=2, le=MAX_REQUESTS)]
    """Requests of the trace. Unit: requests."""
    gaps_s: Annotated[tuple[_Seconds, ...], _Levels]
    """Times from one request to the next, as levels. Unit: s."""
    cells: Annotated[tuple[Cell, ...], Field(strict=False, min_length=1, max_length=_MAX_CELLS)]
    """The kinds of requests."""


def read_statistics(path: Path) -> TrafficStatistics:
    """Read a file that `simulate workload --fit` wrote.

    Raises:
        InputError: it is another one; the error names file and key.
    """
    data = read_json_object(path)
    check(TypeAdapter(TrafficStatistics), data, str(path))
    found = TrafficStatistics.model_validate(data)
    if not sum(cell.share for cell in found.cells):
        raise InputError(f"{path}: cells: all shares are 0")
    return found
