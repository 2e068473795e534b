"""The `calibrate` command line. Commands import what they need when they run: help is quick."""

import sys
from collections.abc import Sequence

from sim.command_line import new_app, run_app

app = new_app("From measured runs to latency profiles, and how far to trust them.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "calibrate", argv)


if __name__ == "__main__":
    sys.exit(main())
