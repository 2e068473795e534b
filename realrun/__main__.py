"""The `realrun` command, and `python -m realrun`."""

import sys

from sim.core.start import start


def main() -> int:
    """Run the command line; returns the exit code."""
    start()
    from realrun.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
