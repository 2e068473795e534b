"""The `realrun` command line. Commands import what they need when they run: help is quick."""

import sys
from collections.abc import Sequence

from sim.command_line import new_app, run_app

app = new_app("Serve scenarios on a real paged-attention runner, with the simulator's scheduler.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "realrun", argv)


if __name__ == "__main__":
    sys.exit(main())
