"""The `simulate` command, and `python -m sim`."""

import sys

from sim.core.garbage import rare_collections
from sim.core.start import start


def main() -> int:
    """Run the command line; returns the exit code.

    Nearly all objects that the imports make live as long as the process: the collector would look
    through them again and again.
    """
    start()

    with rare_collections():
        from sim.cli import main as run

        return run()


if __name__ == "__main__":
    sys.exit(main())
