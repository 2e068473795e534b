"""Runs `simulate serve` in a process of its own, as a user does."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.places import REPOSITORY

_ENDS_S = 60


@contextmanager
def served(scenario: Path, arguments: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Serve a scenario; yields the URL and the number of the process.

    Ctrl-C ends the server, so that its run's folder is complete afterwards.
    """
    command = [sys.executable, "-m", "sim", "serve", str(scenario), "--port", "0", *arguments]
    with subprocess.Popen(  # noqa: S603 - our own program
        command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as process:
        try:
            line = process.stdout.readline() if process.stdout is not None else ""
            found = re.search(r"http://[^/]+", line)
            if found is None:
                raise RuntimeError(f"simulate serve did not start: {line}")
            yield found[0], process.pid
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=_ENDS_S)
