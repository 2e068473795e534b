"""What a scenario's `fitted:` section may say: `calibrate fit` writes it."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from sim.validation import KeysError, StrictModel
from sim.workload import MAX_REQUESTS

_Amount = Annotated[float, Field(ge=0, le=1e12)]
# From the least to the most.
_Range = Annotated[tuple[_Amount, ...], Field(strict=False, min_length=2, max_length=2)]
_HalfWidth = Annotated[float, Field(gt=0, le=10)]
_Counted = Annotated[int, Field(ge=1, le=MAX_REQUESTS)]


class FittedSection(StrictModel):
    """What the step times were fitted to, and how far off they are on requests held out."""

    requests: _Counted
    """Measured requests that the fit has seen. Unit: requests."""
    runs: _Counted
    """Measured runs, one for each file of results. Unit: runs."""
    held_out: Annotated[int, Field(ge=0, le=MAX_REQUESTS)]
    """Groups of ten requests, one after the other, that the fit has not seen. Unit: groups."""
    concurrency: _Range
    """Requests in the system, the mean of each run: from the least to the most. Unit: requests."""
    prompt_tokens: _Range
    """Tokens of a prompt, the mean of each run: from the least to the most. Unit: tokens."""
    output_tokens: _Range
    """Tokens of an answer, the mean of each run: from the least to the most. Unit: tokens."""
    ttft: _HalfWidth | None = None
    """How far off nine of ten means of TTFT of such groups are, as a natural logarithm. Without
    it: too few were held out to say. Unit: share."""
    tpot: _HalfWidth | None = None
    """The same for TPOT. Unit: share."""
    settings: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    """Hash of the settings that were fitted. Where others are set, nothing is claimed."""

    @model_validator(mode="after")
    def _check_ranges(self) -> Self:
        for name in ("concurrency", "prompt_tokens", "output_tokens"):
            least, most = getattr(self, name)
            if least > most:
                raise KeysError(f"{name}: must go from the least to the most", name)
        return self
