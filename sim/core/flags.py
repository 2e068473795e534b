"""Reads the command lines of other programs: words, environment variables, flags; names flags."""

import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from itertools import takewhile
from typing import Any, NamedTuple

from sim.core.errors import InputError, shorten

_VARIABLE = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
# Words after which `docker run` and a shell name variables.
_BEFORE_VARIABLE = ("-e", "--env", "env", "export", "&&", ";")
# A backslash at the end of a line, and what ends a command.
_JOINED = re.compile(r"\\[ \t\r]*\n")
_END = re.compile(r"\|\|?|&&?|;|&?\d*>.*|<")
_NUMBER = re.compile(r"-?\d+(\.\d*)?(e-?\d+)?|-?\.\d+", re.ASCII | re.IGNORECASE)


class Command(NamedTuple):
    """A command line.

    Attributes:
        variables: environment variables that it sets.
        words: all others.
        config_flags: flags of a file that it names; those among the words go before them.
    """

    variables: dict[str, str]
    words: list[str]
    config_flags: Sequence[str] = ()

    def after(self, program: Sequence[str]) -> list[str] | None:
        """The words after those of a program's name; None if it is not this program.

        A word matches if it is the name, or a path that ends in it. The words end where a shell
        would end the command: at a pipe, a redirection or the next command.
        """
        for start in range(len(self.words) - len(program) + 1):
            named = self.words[start : start + len(program)]
            pairs = zip(named, program, strict=True)
            if all(word == name or word.endswith(f"/{name}") for word, name in pairs):
                return self.words_from(start + len(program))
        return None

    def words_from(self, start: int) -> list[str]:
        """The words from this place to the end of the command."""
        return list(takewhile(lambda word: not _END.fullmatch(word), self.words[start:]))


def split_command(text: str, where: str) -> Command:
    """Split a command line as a shell does; a backslash at a line's end joins it with the next.

    Lines that are comments are left out. Variables are those before the program, and those that
    `docker run` passes on.
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    try:
        words = shlex.split(_JOINED.sub(" ", "\n".join(lines) + "\n"))
    except ValueError as error:
        raise InputError(f"{where}: {str(error).lower()}") from None
    variables: dict[str, str] = {}
    others = []
    may_follow = True
    for word in words:
        given = word.removeprefix("--env=")
        if _VARIABLE.match(given) and (may_follow or given != word):
            name, _, value = given.partition("=")
            variables[name] = value.removesuffix(";")
            continue
        may_follow = word in _BEFORE_VARIABLE
        others.append(word)
    if not others:
        raise InputError(f"{where}: has no command")
    return Command(variables, others)


class Effect(Enum):
    """What a flag that is no key does to the answer; the values are those of messages."""

    NOTHING = "changes nothing here"
    TIME = "changes only how long steps take, which latency does not know"
    NOT_SIMULATED = "not simulated"
    REFUSED = "cannot be simulated"


class OtherFlags(NamedTuple):
    """Flags of a program that are no keys, for one reason.

    Attributes:
        effect: what they do to the answer.
        reason: why; empty if the effect says all.
        values, switches, lists: names without the dashes: of flags that take one value, none,
            several. A switch may be written with `no-` before its name.
    """

    effect: Effect
    reason: str
    values: frozenset[str]
    switches: frozenset[str]
    lists: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        return self.values | self.switches | self.lists


class ReadFlags(NamedTuple):
    """What a command line says after the program's name.

    Attributes:
        values: by key; the text of an option, the list of texts of a list, the value of a switch.
        positional: words that belong to no flag.
        ignored: flags that are known to change nothing here.
        unknown: flags that are not known, with their values.
        others: flags that change something that is not simulated, with their values, by group.
    """

    values: dict[str, Any]
    positional: tuple[str, ...]
    ignored: tuple[str, ...]
    unknown: tuple[str, ...]
    others: Mapping[OtherFlags, Sequence[str]]


class Flags(NamedTuple):
    """The flags that a program has, without the dashes.

    Attributes:
        options: flags that take one value, and their keys in `ReadFlags.values`.
        switches: flags that take none; their keys, and what they set them to.
        lists: flags that take several values, and their keys.
        ignored: flags that change nothing here, however many values they take.
        others: further flags, by what they do to the answer.
    """

    options: Mapping[str, str]
    switches: Mapping[str, tuple[str, object]]
    lists: Mapping[str, str]
    ignored: Collection[str]
    others: Sequence[OtherFlags] = ()

    def read(self, words: Sequence[str], where: str) -> ReadFlags:
        """Read the words after a program's name; a flag may be shortened, as with argparse.

        Raises InputError: a flag has no value, or one too much, or cannot be simulated.
        """
        read = ReadFlags({}, (), (), (), {})
        at = 0
        while at < len(words):
            written, has_value, value = words[at].partition("=")
            end = next((i for i in range(at + 1, len(words)) if _is_flag(words[i])), len(words))
            if not _is_flag(words[at]):
                read = read._replace(positional=(*read.positional, words[at]))
                at += 1
                continue
            given = [value] if has_value else list(words[at + 1 : end])
            read, num_used = self._take(read, written, given, where)
            if has_value and not num_used:
                raise InputError(f"{where}: {written}: takes no value, got {shorten(value)}")
            at += 1 if has_value else 1 + num_used
        return read

    def _take(
        self, read: ReadFlags, written: str, given: list[str], where: str
    ) -> tuple[ReadFlags, int]:
        """`read` with a flag; and how many of the words `given` are its values."""
        name = self._known(written.lstrip("-").replace("_", "-"))
        group = next((each for each in self.others if name in each.names), None)
        takes_one = name in self.options or (group is not None and name in group.values)
        takes_none = name in self.switches or (group is not None and name in group.switches)
        if takes_one and not given:
            raise InputError(f"{where}: {written}: has no value")
        values = given[: 1 if takes_one else 0 if takes_none else len(given)]
        if name in self.options:
            read.values[self.options[name]] = values[0]
        elif name in self.switches:
            key, switched = self.switches[name]
            read.values[key] = switched
        elif name in self.lists:
            read.values[self.lists[name]] = values
        elif group is not None and group.effect is Effect.REFUSED:
            raise InputError(f"{where}: {written}: {group.effect.value}: {group.reason}")
        elif group is not None and group.effect is not Effect.NOTHING:
            read = read._replace(others=_added(read.others, group, " ".join((written, *values))))
        elif group is not None or name in self.ignored or self._switches_off(name):
            values = [] if self._switches_off(name) else values
            read = read._replace(ignored=(*read.ignored, written))
        else:
            read = read._replace(unknown=(*read.unknown, " ".join((written, *values))))
        return read, len(values)

    def _switches_off(self, name: str) -> bool:
        """Whether it is a switch with `no-` before its name, or `disable` for `enable`.

        Without the switch its key has the default, which is off.
        """
        positive = name.removeprefix("no-")
        if positive == name and name.startswith("disable-"):
            positive = name.replace("disable-", "enable-", 1)
        if positive == name:
            return False
        return positive in self.switches or any(positive in each.switches for each in self.others)

    def _known(self, name: str) -> str:
        """The flag that `name` means: the one of this name, or the only one that begins with it."""
        every = {*self.options, *self.switches, *self.lists, *self.ignored}
        every.update(*(each.names for each in self.others))
        if name in every:
            return name
        begun = [each for each in every if each.startswith(name)]
        return begun[0] if len(begun) == 1 else name


def _added(
    others: Mapping[OtherFlags, Sequence[str]], group: OtherFlags, written: str
) -> dict[OtherFlags, Sequence[str]]:
    return {**others, group: (*others.get(group, ()), written)}


def plain_value(text: str) -> int | float | bool | str:
    """A flag's text as a number or a truth value if it is one, else as it is."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if not _NUMBER.fullmatch(text):
        return text
    number = float(text)
    return int(number) if number.is_integer() and "." not in text else number


def flag_of(key: str) -> str:
    """`--page-size` of `page_size`."""
    return f"--{key.replace('_', '-')}"


def flag_words(key: str, value: object) -> list[str]:
    """A setting as words of a command line: a list as several words, a mapping as JSON.

    None and an empty list are no words: the program's default.
    """
    match value:
        case None | []:
            return []
        case bool():
            return [flag_of(key) if value else f"--no-{flag_of(key)[2:]}"]
        case list():
            return [flag_of(key), *map(str, value)]
        case dict():
            return [f"{flag_of(key)}={json.dumps(value)}"]
        case _:
            return [f"{flag_of(key)}={value}"]


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _NUMBER.fullmatch(word)
