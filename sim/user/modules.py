"""Finds and loads a user's Python module: from Python's path, else from the scenario's folder.

A scenario that names such a module makes a command run its code. So the command says it, and
`--no-user-code` refuses it. Commands without that option run no code of users. A log of somebody
else's run has a scenario, too: its module runs only with `--user-code`.
"""

import hashlib
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from sim.core.errors import InputError, say

_WANTED = "SERVETWIN_USER_CODE"
# Its values: the command lacks the option; with it: --no-user-code, neither, --user-code.
_NEVER, _REFUSED, _OWN, _ALL = "never", "0", "own", "1"
_said: set[Path] = set()


def find_module(name: str, folder: Path) -> Path:
    """The source file of `module` or `package.module`, which is not run.

    It is looked for on Python's own path, and then in the folder.
    """
    return _find(name, folder)[0]


def source_hash(name: str, folder: Path) -> str:
    """SHA-256, in hex, of the source of `module` or `module:Class`. The module is not run."""
    path = find_module(name.partition(":")[0], folder)
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def load_module(name: str, folder: Path) -> ModuleType:
    """Import a module. It may import other modules of its folder.

    Raises:
        InputError: there is no such module, or the command runs none.
        Exception: whatever the module raises.
    """
    source, is_beside = _find(name, folder)
    allow_code(source)
    if not is_beside:
        return importlib.import_module(name)
    _forget_namesakes(name, source)
    with _on_path(folder):
        return importlib.import_module(name)


def allow_code(source: Path) -> None:
    """Say that the code of a file, which the scenario names, runs.

    Raises InputError: the command runs none.
    """
    if user_code_wanted() is False:
        refused = os.environ[_WANTED] == _REFUSED
        why = "because of --no-user-code" if refused else "because this command runs no users' code"
        raise InputError(f"the code of {source} is not run, {why}")
    _say_once(source)


@contextmanager
def user_code(wanted: bool | None) -> Iterator[None]:
    """Inside, and in processes that are started inside, users' modules are run or refused.

    `wanted` is the option of the command line; None: run them if the user's scenario names them,
    and the process that started this one did not refuse them.
    """
    if wanted is None and os.environ.get(_WANTED) != _REFUSED:
        wanted_text = _OWN
    else:
        wanted_text = _ALL if wanted else _REFUSED
    with _set(wanted_text):
        yield


@contextmanager
def no_user_code() -> Iterator[None]:
    """Inside, no module of users is run, but inside of `user_code`."""
    refused = os.environ.get(_WANTED) == _REFUSED
    with _set(_REFUSED if refused else _NEVER):
        yield


@contextmanager
def _set(value: str) -> Iterator[None]:
    before = os.environ.get(_WANTED)
    os.environ[_WANTED] = value
    try:
        yield
    finally:
        if before is not None:
            os.environ[_WANTED] = before
        else:
            os.environ.pop(_WANTED, None)


def user_code_wanted() -> bool | None:
    """Whether the user wants modules to be run; None: the command line does not say."""
    return {_NEVER: False, _REFUSED: False, _ALL: True}.get(os.environ.get(_WANTED, ""))


def _say_once(source: Path) -> None:
    """Say whose code runs: once in a run, not in each of its processes."""
    from multiprocessing import parent_process

    if source not in _said and parent_process() is None:
        _said.add(source)
        say(f"servetwin: runs the code of {source}, which the scenario names")


def _find(name: str, folder: Path) -> tuple[Path, bool]:
    """The module's file, and whether it was found in the folder and not on the path."""
    importlib.invalidate_caches()
    top = name.partition(".")[0]
    # What a first import of the name would find, even if it is imported already.
    specs = (finder.find_spec(top, None) for finder in sys.meta_path)
    spec = next(filter(None, specs), None)
    is_beside = spec is None and top not in sys.stdlib_module_names
    if is_beside:
        spec = PathFinder.find_spec(top, [str(folder.absolute())])
    parts = name.split(".")
    for end in range(2, len(parts) + 1):
        if spec is None or spec.submodule_search_locations is None:
            spec = None
            break
        spec = PathFinder.find_spec(".".join(parts[:end]), spec.submodule_search_locations)
    if spec is None:
        raise InputError(f"no module {name} on Python's path or in {folder.absolute()}")
    if not spec.has_location or spec.origin is None:
        raise InputError(f"module {name} has no source file")
    return Path(spec.origin), is_beside


def _forget_namesakes(name: str, source: Path) -> None:
    """Forget imported modules of this name: they may come from another scenario's folder."""
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(source):
        return
    top = name.partition(".")[0]
    for module in [module for module in sys.modules if module.partition(".")[0] == top]:
        del sys.modules[module]


@contextmanager
def _on_path(folder: Path) -> Iterator[None]:
    entry = str(folder.absolute())
    sys.path.append(entry)
    try:
        yield
    finally:
        sys.path.remove(entry)
