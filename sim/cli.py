"""The `simulate` command line."""

import sys
from collections.abc import Sequence

from sim.command_line import Program, use_one_blas_thread

PROGRAM = Program(
    name="simulate",
    about="Simulate an LLM serving scheduler: scenarios in, latencies and decisions out.",
    package="sim.commands",
    commands=(
        "run", "validate", "workload", "import", "compare", "timeline", "sweep", "report", "tune",
        "plan", "contest", "demo", "play", "serve", "engine",
    ),
    modules={
        "compare": "report", "timeline": "report", "tune": "sweep", "demo": "sweep",
        "play": "serve",
    },
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    use_one_blas_thread()
    return PROGRAM.main(argv)


if __name__ == "__main__":
    sys.exit(main())
