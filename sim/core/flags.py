"""Reads the command lines of other programs: words, environment variables, flags."""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sim.core.errors import InputError

_VARIABLE = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_NUMBER = re.compile(r"-?\d+(\.\d*)?(e-?\d+)?|-?\.\d+", re.ASCII | re.IGNORECASE)


class Command(NamedTuple):
    """A command line: environment variables that it sets, and its words."""

    variables: dict[str, str]
    words: list[str]

    def after(self, program: Sequence[str]) -> list[str] | None:
        """The words after those of a program's name; None if it is not this program.

        A word matches if it is the name, or a path that ends in it.
        """
        for start in range(len(self.words) - len(program) + 1):
            named = self.words[start : start + len(program)]
            pairs = zip(named, program, strict=True)
            if all(word == name or word.endswith(f"/{name}") for word, name in pairs):
                return self.words[start + len(program) :]
        return None


def split_command(text: str, where: str) -> Command:
    """Split a command line as a shell does; a backslash at a line's end joins it with the next."""
    try:
        words = shlex.split(text.replace("\\\n", " "))
    except ValueError as error:
        raise InputError(f"{where}: {str(error).lower()}") from None
    variables: dict[str, str] = {}
    while words and _VARIABLE.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    if not words:
        raise InputError(f"{where}: has no command")
    return Command(variables, words)


class ReadFlags(NamedTuple):
    """What a command line says after the program's name.

    Attributes:
        values: by key; the text of an option, the list of texts of a list, the value of a switch.
        positional: words before the first flag.
        ignored: flags that are known to change nothing here.
        unknown: all other flags, with their values.
    """

    values: dict[str, Any]
    positional: tuple[str, ...]
    ignored: tuple[str, ...]
    unknown: tuple[str, ...]


class Flags(NamedTuple):
    """The flags that a program has, without the dashes.

    Attributes:
        options: flags that take one value, and their keys in `ReadFlags.values`.
        switches: flags that take none; their keys, and what they set them to.
        lists: flags that take several values, and their keys.
        ignored: flags that change nothing here.
    """

    options: Mapping[str, str]
    switches: Mapping[str, tuple[str, object]]
    lists: Mapping[str, str]
    ignored: Collection[str]

    def read(self, words: Sequence[str], where: str) -> ReadFlags:
        """Read the words after a program's name; a flag may be shortened, as with argparse."""
        first = next((i for i, word in enumerate(words) if _is_flag(word)), len(words))
        values: dict[str, Any] = {}
        ignored: list[str] = []
        unknown: list[str] = []
        at = first
        while at < len(words):
            written, has_value, value = words[at].partition("=")
            end = next((i for i in range(at + 1, len(words)) if _is_flag(words[i])), len(words))
            given = [value] if has_value else list(words[at + 1 : end])
            name = self._known(written.lstrip("-").replace("_", "-"))
            if name in self.options:
                if not given:
                    raise InputError(f"{where}: {written}: has no value")
                values[self.options[name]] = given[0]
            elif name in self.switches:
                key, switched = self.switches[name]
                values[key] = switched
            elif name in self.lists:
                values[self.lists[name]] = given
            elif name in self.ignored:
                ignored.append(written)
            else:
                unknown.append(" ".join((written, *given)))
            at = end
        return ReadFlags(values, tuple(words[:first]), tuple(ignored), tuple(unknown))

    def _known(self, name: str) -> str:
        """The flag that `name` means: the one of this name, or the only one that begins with it."""
        every = {*self.options, *self.switches, *self.lists, *self.ignored}
        if name in every:
            return name
        begun = [each for each in every if each.startswith(name)]
        return begun[0] if len(begun) == 1 else name


def plain_value(text: str) -> int | float | bool | str:
    """A flag's text as a number or a truth value if it is one, else as it is."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if not _NUMBER.fullmatch(text):
        return text
    number = float(text)
    return int(number) if number.is_integer() and "." not in text else number


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _NUMBER.fullmatch(word)
