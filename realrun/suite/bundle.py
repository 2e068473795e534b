"""Several logs in one tar file, which is whole at any moment."""

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sim.core.atomic import atomic_path
from sim.core.errors import InputError

_BLOCK_BYTES = 1 << 20


def member_sizes(bundle: Path) -> dict[str, int]:
    """Bytes of the files inside by name, in order; empty if there is no bundle yet.

    Raises:
        InputError: the file is no tar file, or damaged.
    """
    if not bundle.exists():
        return {}
    with _opened(bundle) as tar:
        return {member.name: member.size for member in tar}


def add_member(bundle: Path, name: str, content: bytes) -> None:
    """Put one more file into the bundle, which is made if there is none.

    Raises:
        InputError: the bundle is damaged, or cannot be written.
    """
    with atomic_path(bundle) as beside, tarfile.open(beside, "w") as new:
        if bundle.exists():
            with _opened(bundle) as old:
                for member in old:
                    new.addfile(member, old.extractfile(member))
        # No owner and no time: the same logs make the same bundle.
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        new.addfile(entry, io.BytesIO(content))


def is_whole(path: Path) -> bool:
    """Whether a compressed log, or every one in a bundle, can be read to its end."""
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
