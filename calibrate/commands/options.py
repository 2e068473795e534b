"""Options of two commands."""

from typing import Annotated

import typer

First = Annotated[
    int | None,
    typer.Option(min=1, help="with results or a scenario: only the first N requests by arrival"),
]
MeasuredArrivals = Annotated[
    bool,
    typer.Option(
        "--measured-arrivals",
        help="with a scenario: requests arrive at their measured arrival times",
    ),
]
