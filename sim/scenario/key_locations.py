"""Where each key of a scenario was written: a line of the file, or a `--set` option."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from sim.core.errors import KeyPath
from sim.core.messages import dotted


@dataclass(frozen=True, slots=True)
class KeyLocations:
    """Where each key path was written. The file's keys come first, then those set by options.

    Attributes:
        labels: `file.yaml:12` or `--set key.path=value` for each key path; the empty path is always
            among them.
        overridden: the key paths that options set.
    """

    labels: Mapping[KeyPath, str]
    overridden: frozenset[KeyPath] = frozenset()
    # What was asked before: a sweep asks the same for each of its points.
    _outside: dict[frozenset[str], "KeyLocations"] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _named: dict[str, dict[str | int, list[KeyPath]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @staticmethod
    def of_lines(name: str, lines: Mapping[KeyPath, int]) -> "KeyLocations":
        return KeyLocations({path: f"{name}:{line}" for path, line in lines.items()})

    def outside(self, sections: frozenset[str]) -> "KeyLocations":
        """The locations of the keys that are not in these sections of the scenario."""
        if sections not in self._outside:
            tops = {(section,) for section in sections}
            labels = {path: at for path, at in self.labels.items() if path[:1] not in tops}
            kept = frozenset(path for path in self.overridden if path in labels)
            self._outside[sections] = KeyLocations(labels, kept)
        return self._outside[sections]

    def named(self, section: str, key: str) -> Sequence[KeyPath]:
        """Every place in a section of the scenario that has this key, in the order of the file."""
        if section not in self._named:
            places = self._named[section] = {}
            for path in self.labels:
                if path[:1] == (section,):
                    places.setdefault(path[-1], []).append(path)
        return self._named[section].get(key, ())

    def with_override(self, path: KeyPath, label: str) -> "KeyLocations":
        """The locations after an option replaced everything at and below `path`."""
        labels = {p: old for p, old in self.labels.items() if p[: len(path)] != path}
        labels[path] = label
        overridden = {p for p in self.overridden if p[: len(path)] != path} | {path}
        return KeyLocations(labels, frozenset(overridden))

    def nearest(self, path: KeyPath) -> KeyPath:
        """The key that an error about `path` points to. It is a key that the user wrote.

        It is `path` itself if the user wrote it, else a key below `path` that an option set. If
        there is neither, the same is tried for the key above `path`.
        """
        while path not in self.labels:
            below = [p for p in self.labels if p in self.overridden and p[: len(path)] == path]
            if below:
                return below[0]
            path = path[:-1]
        return path

    def positions(self) -> Mapping[KeyPath, int]:
        """The place of each key path in the order of `labels`."""
        return {path: place for place, path in enumerate(self.labels)}

    def key_to_blame(self, paths: Iterable[KeyPath]) -> KeyPath:
        """Of several keys that contradict each other, the one that the error is about.

        It is the first one that an option set, else the first one that is written in the file, else
        the first.
        """
        candidates = list(paths)
        set_by_option = (path for path in candidates if self.nearest(path) in self.overridden)
        in_file = (path for path in candidates if path in self.labels)
        return next(chain(set_by_option, in_file, candidates))

    def message(self, path: KeyPath, reason: str, *, blamed: KeyPath | None = None) -> str:
        """One line: `label: key.path: reason`, without the key path if the label shows it.

        Args:
            path: the key that the reason is about.
            reason: what is wrong.
            blamed: the key whose label is shown; None: `path`.
        """
        written = self.nearest(path if blamed is None else blamed)
        label = self.labels[written]
        if not path or (written == path and path in self.overridden):
            return f"{label}: {reason}"
        return f"{label}: {dotted(path)}: {reason}"
