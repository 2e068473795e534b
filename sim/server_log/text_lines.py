"""The lines of a log in one or several files, as an engine wrote them.

Colours are taken out. A progress bar writes itself anew after each carriage return; what stands
after the last one is the line. Invalid UTF-8 is left as it is: lines are bytes.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from sim.core.errors import InputError
from sim.core.packed import MAX_LINE_BYTES, open_unpacked

_COLOUR = re.compile(rb"\x1b\[[0-9;?]{0,20}[A-Za-z]")


class Lines:
    """The lines of files that follow each other. It is iterated once.

    Attributes:
        cut: how many files end within a line. Such a line is not yielded: its last number may not
            be whole.
        number: lines so far, also while they are yielded: the number of the line.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.cut = 0
        self.number = 0
        self._paths = paths

    def __iter__(self) -> Iterator[bytes]:
        """Yield lines without their ends.

        Raises:
            InputError: a file cannot be read, or a line is longer than a line of text can be.
        """
        for path in self._paths:
            with open_unpacked(path) as unpacked:
                rest = b""
                for part in unpacked.parts():
                    # Of a megabyte at a time: asking the file for each line takes longer than
                    # reading what the line says.
                    lines = (rest + part if rest else part).split(b"\n")
                    rest = lines.pop()
                    if len(rest) > MAX_LINE_BYTES:
                        reason = f"is longer than {MAX_LINE_BYTES >> 20} MiB: not a line of text"
                        raise InputError(f"{path}:{self.number + 1}: {reason}")
                    for line in lines:
                        self.number += 1
                        yield line
            if rest:
                self.cut += 1
                self.number += 1


def cleaned(line: bytes) -> bytes:
    """The line without colours, and without what a progress bar has overwritten."""
    if b"\x1b" in line:
        line = _COLOUR.sub(b"", line)
    if b"\r" in line:
        line = line.rstrip(b"\r")
        line = line[line.rfind(b"\r") + 1 :]
    return line
