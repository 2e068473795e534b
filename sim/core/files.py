"""Files of results: written whole or not at all, never over what the command has read."""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from operator import add
from pathlib import Path
from tempfile import TemporaryDirectory

from sim.core.errors import InputError

# Descriptors of the folders that the command writes to; None outside of commands.
_folders: ContextVar[list[int] | None] = ContextVar("folders", default=None)
# Device and inode of the files that the command has read; None outside of commands.
_inputs: ContextVar[set[tuple[int, int]] | None] = ContextVar("inputs", default=None)


@contextmanager
def inputs_kept() -> Iterator[None]:
    """Inside, files that were read cannot be written or removed, and locked folders stay locked.

    For command lines. A notebook may read a result and then write it anew.
    """
    token, locked = _inputs.set(set()), _folders.set([])
    try:
        yield
    finally:
        for folder in _folders.get() or ():
            os.close(folder)
        _folders.reset(locked)
        _inputs.reset(token)


def lock_folder(folder: Path) -> None:
    """Let no other command write results to a folder, until this command ends."""
    if (locked := _folders.get()) is None:
        return
    try:
        file = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror}") from None
    locked.append(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"{folder}: another command writes its results there") from None
    except OSError:
        # Some network file systems have no locks.
        return


def unlock_folders() -> None:
    """Let go of the folders in a process that was forked; the process that locked them keeps them.

    Otherwise they would stay locked for as long as the forked one lives.
    """
    for file in _folders.get() or ():
        os.close(file)
    _folders.set(None)


def note_input(path: Path, file: int | None = None) -> None:
    """Note that a file is read; `file` is its descriptor, if it is open."""
    inputs = _inputs.get()
    if inputs is not None and (identity := _identity(path, file)) is not None:
        inputs.add(identity)


def allow_update(path: Path) -> None:
    """Let a file be written that was read, because the command continues its own earlier result."""
    inputs = _inputs.get()
    if inputs and (identity := _identity(path)) is not None:
        inputs.discard(identity)


def refuse_input(path: Path) -> None:
    """Raise InputError if a file is about to be written or removed that was read."""
    inputs = _inputs.get()
    if inputs and _identity(path) in inputs:
        raise InputError(f"{path}: is read by this command: write to another place")


def _identity(path: Path, file: int | None = None) -> tuple[int, int] | None:
    """Device and inode of a file; None if they cannot be read."""
    try:
        status = path.stat() if file is None else os.fstat(file)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def check_target(target: Path) -> None:
    """Check that a file can be written at `target`, and that the command has not read it."""
    try:
        if not target.parent.is_dir():
            raise InputError(f"{target}: its folder {target.parent} does not exist")
        if target.is_dir():
            raise InputError(f"{target}: is a folder, expected a file to write")
        # Renaming a file over a pipe or a device would remove it.
        if target.exists() and not target.is_file():
            raise InputError(f"{target}: is not a regular file")
        refuse_input(target)
    except OSError as error:
        raise _refusal(target, error) from error


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Give a path beside `target` to write to; it is renamed to `target` if the block succeeds."""
    check_target(target)
    # Nobody can guess the name, and put a link there that leads to another file.
    beside = target.with_name(f".{os.getpid()}-{os.urandom(8).hex()}.tmp")
    try:
        beside.touch(exist_ok=False)
        yield beside
        beside.replace(target)
    except OSError as error:
        raise _refusal(target, error) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


@contextmanager
def all_or_none(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Give a folder to write files of these names to; if the block succeeds, they go to `folder`.

    They go there in this order: while the last is not there, they may not be of one run. The folder
    is made unless it exists, and removed again if nothing goes there.
    """
    is_new = not folder.exists()
    make_folder(folder)
    try:
        with TemporaryDirectory(dir=folder, prefix=".", suffix=".tmp") as beside:
            try:
                for name in names:
                    check_target(folder / name)
                yield Path(beside)
                remove_file(folder / names[-1])
                for name in names:
                    (Path(beside) / name).replace(folder / name)
            except InputError as error:
                raise InputError(str(error).replace(beside, str(folder))) from None
    except OSError as error:
        raise _refusal(folder, error) from error
    finally:
        if is_new:
            with suppress(OSError):
                folder.rmdir()


def _refusal(target: Path, error: OSError) -> InputError:
    return InputError(f"{target}: cannot be written: {error.strerror or error}")


def make_folder(path: Path) -> None:
    try:
        path.mkdir(exist_ok=True)
    except FileExistsError:
        raise InputError(f"{path}: is a file, not a folder") from None
    except FileNotFoundError:
        raise InputError(f"{path}: folder {path.parent} does not exist") from None
    except OSError as error:
        raise InputError(f"{path}: cannot make the folder: {error.strerror}") from error


def remove_file(path: Path) -> None:
    """Remove an old file of results if it exists."""
    refuse_input(path)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be removed: {error.strerror}") from error


def json_text(content: object, indent: int = 2, *, ascii_only: bool = False) -> str:
    """Lines of JSON; equal content gives equal text. NaN and infinity raise ValueError.

    The text is that of `json.dumps` with `indent`, which goes through all values in Python. This is
    quicker: a container of plain values is written in one piece by the encoder of json in C, which
    also puts the line breaks between the values.
    """

    @cache
    def encode(depth: int) -> Callable[[object], str]:
        between = ",\n" + " " * indent * depth
        return json.JSONEncoder(
            separators=(between, ": "), allow_nan=False, ensure_ascii=ascii_only
        ).encode

    def text(value: object, depth: int) -> str:
        items = _items(value)
        begin, end = "\n" + " " * indent * (depth + 1), "\n" + " " * indent * depth
        encoded = encode(depth + 1)
        if not items:
            return encoded(value)
        if not any(map(_items, items)):
            whole = encoded(value)
            return f"{whole[0]}{begin}{whole[1:-1]}{end}{whole[-1]}"
        texts = [text(item, depth + 1) for item in items]
        if not isinstance(value, dict):
            return f"[{begin}{f',{begin}'.join(texts)}{end}]"
        keys = [encoded({key: None})[1 : -len("null}")] for key in value]
        lines = f",{begin}".join(map(add, keys, texts))
        return f"{{{begin}{lines}{end}}}"

    return text(content, 0) + "\n"


def _items(value: object) -> Collection[object]:
    """What a container of JSON has in it; nothing of other values."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def json_digest(content: object) -> str:
    """SHA-256, in hex, of JSON values: equal content gives an equal hash."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write_text(path: Path, text: str) -> None:
    with atomic_path(path) as beside:
        beside.write_text(text, encoding="utf-8")


def located(base_dir: Path, name: str) -> Path:
    """The path of a file that a file in `base_dir` names, without detours through `..`."""
    path = base_dir / name
    # From a folder that is a link, `..` leads to the folder above the link's target.
    is_link = base_dir.resolve() != Path(os.path.abspath(base_dir))  # noqa: PTH100 - unresolved
    return path if is_link else Path(os.path.normpath(path))
