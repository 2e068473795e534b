"""The option `--sure` of the searches, which sets `judged_by` of their sections."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from sim.scenario.load import LoadedScenario

Sure = Annotated[
    bool,
    typer.Option(
        "--sure",
        help="meet the SLO at the upper ends of the 90 % intervals: 9 of 10 such servers would",
    ),
]


def made_sure(
    loaded: "LoadedScenario", section: Literal["plan", "tune"], *, sure: bool
) -> "LoadedScenario":
    """The scenario with `judged_by` of its section as `--sure` sets it, if it is given."""
    from sim.scenario.load import change

    if not sure or getattr(loaded.scenario, section) is None:
        return loaded
    return change(loaded, [f"{section}.judged_by=upper_end"])
