"""Where each key of a scenario was written: a line of the file, or a `--set` option."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sim.core.wording import KeyPath, dotted


@dataclass(frozen=True, slots=True)
class Origins:
    """Labels of key paths, in reading order: the file's lines first, then the options.

    Attributes:
        labels: `file.yaml:12` or `--set key.path=value`, by key path; the empty path is always
            present.
        overridden: the key paths that options gave.
    """

    labels: Mapping[KeyPath, str]
    overridden: frozenset[KeyPath] = frozenset()

    @staticmethod
    def of_lines(name: str, lines: Mapping[KeyPath, int]) -> "Origins":
        return Origins({path: f"{name}:{line}" for path, line in lines.items()})

    def with_override(self, path: KeyPath, label: str) -> "Origins":
        """The origins after an option replaced everything at and below `path`."""
        labels = {p: old for p, old in self.labels.items() if p[: len(path)] != path}
        labels[path] = label
        overridden = {p for p in self.overridden if p[: len(path)] != path} | {path}
        return Origins(labels, frozenset(overridden))

    def nearest(self, path: KeyPath) -> KeyPath:
        """The written path whose label fits `path`.

        That is the path itself; or, if an option created it on the way to a deeper key, that key;
        or its nearest ancestor.
        """
        while path not in self.labels:
            below = [p for p in self.labels if p in self.overridden and p[: len(path)] == path]
            if below:
                return below[0]
            path = path[:-1]
        return path

    def position(self, path: KeyPath) -> int:
        """Rank of `path` in reading order."""
        return list(self.labels).index(self.nearest(path))

    def culprit(self, paths: Iterable[KeyPath]) -> KeyPath:
        """Of several keys that contradict each other, the one to blame.

        That is the first one an option gave, else the first one written down, else the first.
        """
        candidates = list(paths)
        for path in candidates:
            if self.nearest(path) in self.overridden:
                return path
        return next((path for path in candidates if path in self.labels), candidates[0])

    def message(self, path: KeyPath, reason: str, *, blamed: KeyPath | None = None) -> str:
        """One line: where it was written, the key path unless the label says it, the reason.

        Args:
            path: the key the reason is about.
            reason: what is wrong.
            blamed: the key whose place is shown, `path` if None.
        """
        written = self.nearest(path if blamed is None else blamed)
        label = self.labels[written]
        if not path or (written == path and path in self.overridden):
            return f"{label}: {reason}"
        return f"{label}: {dotted(path)}: {reason}"
