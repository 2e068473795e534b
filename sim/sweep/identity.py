"""Computes keys of points. Points with the same scenario, files and code have the same key."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from sim.latency.config import ProfileLatencyConfig
from sim.latency.model_key import MODEL_FILES
from sim.latency.profile.format import shipped_profiles
from sim.scenario.load import LoadedScenario
from sim.scenario.overrides import FILE_KEYS
from sim.scenario.schema import BESIDE_THE_RUN, Scenario
from sim.workload.traces.files import TOKENIZER_FILE

_CHUNK_BYTES = 1 << 20


class Identities:
    """Computes the keys of points; each file is read once.

    Args:
        code: the version of the code that will run them.
    """

    def __init__(self, code: str) -> None:
        self._code = code
        self._digests: dict[Path, str] = {}

    def key(self, loaded: LoadedScenario) -> str:
        """SHA-256 in hex of everything a point's results depend on.

        If a missing file appears later, the key changes.
        """
        digest = hashlib.sha256(f"{self._code}\0{loaded.content_hash}\0".encode())
        scenarios = [loaded, *loaded.pools.values()]
        for each in scenarios:
            for path in named_files(each.scenario, each.base_dir):
                digest.update(f"{self._digest(path)}\0".encode())
        return digest.hexdigest()

    def _digest(self, path: Path) -> str:
        if path not in self._digests:
            self._digests[path] = _file_digest(path)
        return self._digests[path]


def named_files(scenario: Scenario, base_dir: Path) -> list[Path]:
    """The files of a scenario: traces, tables, profiles, recordings, host times, models.

    A name of packaged data gives a path that does not exist.
    """
    sections = scenario.model_dump(mode="json", exclude=set(BESIDE_THE_RUN))
    named = [(key, base_dir / name) for key, name in _names(sections)]
    paths = [file for key, path in named for file in _files(key, path)]
    if isinstance(scenario.latency, ProfileLatencyConfig):
        # Shipped profiles are not in package `sim`, so the code's version does not cover them.
        shipped = shipped_profiles().get(scenario.latency.path)
        paths += [] if shipped is None else [Path(str(shipped))]
    return paths


def _files(key: str, path: Path) -> list[Path]:
    """The file itself; of a folder, what is read of it: not a model's weights."""
    if not path.is_dir():
        return [path]
    if key == "model":
        return [path / name for name in MODEL_FILES]
    if key == "tokenizer":
        return [path / TOKENIZER_FILE]
    return sorted(file for file in path.rglob("*") if file.is_file())


def _names(value: object) -> Iterator[tuple[str, str]]:
    """Keys that name files, and the names."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in FILE_KEYS and isinstance(item, str):
                yield key, item
            else:
                yield from _names(item)
    elif isinstance(value, list):
        for item in value:
            yield from _names(item)


def _file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        if not path.is_file():
            return "none"
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError:
        # The worker that runs the point reports the error.
        return "unreadable"
    return digest.hexdigest()
