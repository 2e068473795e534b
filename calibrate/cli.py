"""The `calibrate` command line."""

import sys

from sim.command_line import Program

PROGRAM = Program(
    name="calibrate",
    about="From measured runs to latency profiles, and how far to trust them.",
    package="calibrate.commands",
    commands=("explain", "fit", "show", "validate", "watch"),
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
