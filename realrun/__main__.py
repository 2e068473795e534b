"""Makes `python -m realrun` the same as the command `realrun`."""

import sys

from realrun.cli import main

if __name__ == "__main__":
    sys.exit(main())
