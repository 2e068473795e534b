"""Bundles: several logs in one tar file, which is never left incomplete."""

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sim.core.errors import InputError
from sim.core.files import atomic_path

_BLOCK_BYTES = 1 << 20


def member_sizes(bundle: Path) -> dict[str, int]:
    """Size in bytes of each file in the bundle, by name; empty if there is no bundle yet.

    Raises:
        InputError: the file is not a tar file, or is damaged.
    """
    if not bundle.exists():
        return {}
    with _opened(bundle) as tar:
        return {member.name: member.size for member in tar}


def add_member(bundle: Path, name: str, content: bytes) -> None:
    """Add a file to the bundle, which is made if it does not exist.

    Raises:
        InputError: the bundle is damaged, or cannot be written.
    """
    with atomic_path(bundle) as beside, tarfile.open(beside, "w") as new:
        if bundle.exists():
            with _opened(bundle) as old:
                for member in old:
                    new.addfile(member, old.extractfile(member))
        # Without owner and time, so that the same logs give the same bytes.
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        new.addfile(entry, io.BytesIO(content))


def is_whole(path: Path) -> bool:
    """Whether a compressed log, or every log in a bundle, can be read to its end."""
    try:
        if path.suffix != ".tar":
            return _unzips(path.read_bytes())
        with _opened(path) as tar:
            files = [tar.extractfile(member) for member in tar]
            return all(file is not None and _unzips(file.read()) for file in files)
    except (InputError, OSError):
        return False


@contextmanager
def _opened(bundle: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(bundle, "r:") as tar:
            yield tar
    except (tarfile.TarError, EOFError) as error:
        raise InputError(f"{bundle}: not a whole tar file ({error})") from None


def _unzips(content: bytes) -> bool:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            while file.read(_BLOCK_BYTES):
                pass
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return False
    return True
