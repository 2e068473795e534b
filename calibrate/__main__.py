"""`python -m calibrate` is the `calibrate` command."""

import sys

from calibrate.cli import main

if __name__ == "__main__":
    sys.exit(main())
