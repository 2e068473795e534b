"""The `calibrate` command, and `python -m calibrate`."""

import sys

from sim.core.start import end_by_interrupt


def main() -> int:
    """Run the command line; returns the exit code."""
    end_by_interrupt()
    from calibrate.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
