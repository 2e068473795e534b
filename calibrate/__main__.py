"""The `calibrate` command, and `python -m calibrate`."""

import sys

from sim.core.start import start


def main() -> int:
    """Run the command line; returns the exit code."""
    start()
    from calibrate.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
