"""The programs that inputs are given to: the commands, and what talks to their servers."""

from collections.abc import Callable, Mapping, Sequence

from calibrate.cli import main as calibrate
from fuzz.combined.check import combined
from fuzz.lines.full_disk import limited
from fuzz.lines.words import called
from fuzz.network.clients import clients
from fuzz.network.servers import against
from fuzz.playground import playground
from realrun.cli import main as realrun
from sim.cli import main as simulate

Program = Callable[[Sequence[str]], int]

_COMMANDS: Mapping[str, Program] = {
    "simulate": simulate,
    "calibrate": calibrate,
    "realrun": realrun,
}
PROGRAMS: Mapping[str, Program] = {
    **_COMMANDS,
    "playground": playground,
    "combined": combined,
    "against": against,
    "clients": clients,
    "limited": limited(_COMMANDS),
    "called": called(_COMMANDS),
}
