"""The programs that inputs are given to: the commands, and what talks to their servers."""

from collections.abc import Callable, Mapping, Sequence

from calibrate.cli import main as calibrate
from fuzz.combined.check import combined
from fuzz.playground import playground
from sim.cli import main as simulate

PROGRAMS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "simulate": simulate,
    "calibrate": calibrate,
    "playground": playground,
    "combined": combined,
}
