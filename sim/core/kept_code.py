"""Keeps what Python's library compiles while a program loads.

`dataclasses` and `collections.namedtuple` write the methods of each class as text and compile it,
in each process anew: 600 short texts for a run, an eighth of its time to start. Python keeps the
code of modules in `__pycache__`, but not that of such texts. Here it is kept in the same way.
"""

import atexit
import collections
import dataclasses
import marshal
import os
import sys
from pathlib import Path
from types import CodeType
from typing import Any

Names = dict[str, Any]


class KeptCode:
    """The code of texts, in a file."""

    def __init__(self, file: Path) -> None:
        """Read the file; without one, or if it is damaged, no code is known yet."""
        self._file = file
        try:
            self._known: dict[str, bytes] = marshal.loads(file.read_bytes())  # noqa: S302 - own file
        except (OSError, ValueError, EOFError, TypeError):
            self._known = {}
        self._num_in_file = len(self._known)

    def compiled(self, text: str, mode: str) -> CodeType:
        """The code of a text: of statements with mode `exec`, of an expression with `eval`."""
        known = self._known.get(text)
        if known is not None:
            code: CodeType = marshal.loads(known)  # noqa: S302 - own file
            return code
        code = compile(text, "<string>", mode, dont_inherit=True)
        self._known[text] = marshal.dumps(code)
        return code

    def execute(self, text: str, names: Names, own: Names | None = None) -> None:
        """Take the place of Python's `exec`."""
        exec(self.compiled(text, "exec"), names, own)  # noqa: S102 - dataclasses calls it

    def evaluate(self, text: str, names: Names, own: Names | None = None) -> Any:
        """Take the place of Python's `eval`."""
        return eval(self.compiled(text, "eval"), names, own)  # noqa: S307 - collections calls it

    def save(self) -> None:
        """Write the file if there are new texts. Where that is not possible, nothing is kept."""
        if len(self._known) == self._num_in_file or sys.dont_write_bytecode:
            return
        written = self._file.with_suffix(f".{os.getpid()}")
        try:
            written.write_bytes(marshal.dumps(self._known))
            written.replace(self._file)
        except OSError:
            written.unlink(missing_ok=True)


def keep_code() -> None:
    """From now on, `dataclasses` and `collections` compile only texts that are not kept yet."""
    # Where Python keeps the code of this module: the name says for which Python.
    place = __spec__.cached
    if place is None:
        return
    kept = KeptCode(Path(place).with_suffix(".texts"))
    # These names of the two modules come before Python's functions of the same names.
    vars(dataclasses)["exec"] = kept.execute
    vars(collections)["eval"] = kept.evaluate
    atexit.register(kept.save)
