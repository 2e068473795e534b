"""`python -m realrun` is the `realrun` command."""

import sys

from realrun.cli import main

if __name__ == "__main__":
    sys.exit(main())
