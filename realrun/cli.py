"""The `realrun` command. Nothing behind it is built yet: it says so and exits with code 2."""

import argparse
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Answer `--help`; anything else is refused with exit code 2."""
    parser = argparse.ArgumentParser(
        prog="realrun",
        description="Serve a scenario on a real device with the same scheduler. Not built yet.",
        allow_abbrev=False,
    )
    parser.parse_known_args(argv)
    sys.stderr.write("realrun: not built yet; only --help answers\n")
    return 2
