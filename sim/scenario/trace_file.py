"""A trace that is named in place of a scenario: its section, with `--set` options applied."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from sim.scenario.key_locations import KeyLocations
from sim.scenario.overrides import Data, apply_overrides
from sim.validation.strict_model import StrictModel
from sim.workload.traces.config import TraceConfig
from sim.workload.traces.formats import TraceFormat


class TraceFile(StrictModel):
    """What `--set` can change: the keys of `workload`, and the seed."""

    seed: int = Field(default=0, ge=0)
    workload: TraceConfig


def load_trace(path: Path, format_: TraceFormat, overrides: Sequence[str]) -> TraceFile:
    """The section for a file in this format. The file is not read.

    Raises:
        InputError: an option is wrong.
    """
    data: Data = {"workload": {"kind": "trace", "format": format_, "path": str(path)}}
    data, locations = apply_overrides(data, KeyLocations.of_lines(str(path), {}), overrides)
    try:
        return TraceFile.model_validate(data)
    except ValidationError as error:
        from sim.scenario.explain import explain

        raise explain(error, TraceFile, locations) from None
