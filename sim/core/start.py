"""What a program does before it loads anything else."""

import signal

from sim.core.kept_code import keep_code


def start() -> None:
    """Let a program load quickly, and end at once if it is interrupted meanwhile."""
    _end_by_interrupt()
    keep_code()


def _end_by_interrupt() -> None:
    """Let Ctrl-C end this process at once and without a traceback, until a command takes it.

    What is loaded first takes a while, and leaves nothing to tidy up. A job that ignores Ctrl-C
    goes on to do so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
