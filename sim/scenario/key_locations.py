"""Where each key of a scenario was written: a line of the file, or a `--set` option."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sim.core.errors import KeyPath
from sim.core.messages import dotted


@dataclass(frozen=True, slots=True)
class KeyLocations:
    """Where each key path was written, in reading order: the file's lines, then the options.

    Attributes:
        labels: `file.yaml:12` or `--set key.path=value` for each key path; the empty path is always
            among them.
        overridden: the key paths that options set.
    """

    labels: Mapping[KeyPath, str]
    overridden: frozenset[KeyPath] = frozenset()

    @staticmethod
    def of_lines(name: str, lines: Mapping[KeyPath, int]) -> "KeyLocations":
        return KeyLocations({path: f"{name}:{line}" for path, line in lines.items()})

    def with_override(self, path: KeyPath, label: str) -> "KeyLocations":
        """The locations after an option replaced everything at and below `path`."""
        labels = {p: old for p, old in self.labels.items() if p[: len(path)] != path}
        labels[path] = label
        overridden = {p for p in self.overridden if p[: len(path)] != path} | {path}
        return KeyLocations(labels, frozenset(overridden))

    def nearest(self, path: KeyPath) -> KeyPath:
        """The key that an error about `path` points to: one that a user wrote.

        It is `path` itself if a user wrote it, else a key below `path` that an option set, else the
        nearest key above `path` to which this applies.
        """
        while path not in self.labels:
            below = [p for p in self.labels if p in self.overridden and p[: len(path)] == path]
            if below:
                return below[0]
            path = path[:-1]
        return path

    def position(self, path: KeyPath) -> int:
        """The position of `path` in reading order."""
        return list(self.labels).index(self.nearest(path))

    def key_to_blame(self, paths: Iterable[KeyPath]) -> KeyPath:
        """Of several keys that contradict each other, the one that the error is about.

        It is the first one that an option set, else the first one in the file, else the first.
        """
        candidates = list(paths)
        for path in candidates:
            if self.nearest(path) in self.overridden:
                return path
        return next((path for path in candidates if path in self.labels), candidates[0])

    def message(self, path: KeyPath, reason: str, *, blamed: KeyPath | None = None) -> str:
        """One line: where the key was written, the key path if that does not show it, the reason.

        Args:
            path: the key that the reason is about.
            reason: what is wrong.
            blamed: the key whose location is shown, `path` if None.
        """
        written = self.nearest(path if blamed is None else blamed)
        label = self.labels[written]
        if not path or (written == path and path in self.overridden):
            return f"{label}: {reason}"
        return f"{label}: {dotted(path)}: {reason}"
