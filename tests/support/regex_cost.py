"""Whether a regular expression takes a time that is linear in the text, whatever the text is.

Python's `re` tries one way after the other, so its time is that of all ways to read a text's
beginnings. An expression becomes an automaton (Glushkov's): a state for each character class, a
step for each class that may follow. The ways stay few if no two states p and q can be joined by a
text that leads from p to p, from p to q, and from q to q (Weber and Seidl, 1991); if there are two,
a text of that part again and again takes quadratic time or worse. A search begins at every
character: that is a further state, which goes on with any character.
"""

from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

_parser: Any = import_module("re._parser")
_compiler: Any = import_module("re._compiler")

# Of each class of characters that expressions tell apart.
_ALPHABET = "".join(map(chr, range(256))) + "\u0663\u2003\u4e2d\u017f\u212a\u0130"
# From this many repeats on, a limited repeat counts as one without a limit.
_MANY = 4
_SEARCH = 0


class _NotJudgedError(Exception):
    """The expression uses what this check does not know."""


@dataclass(slots=True)
class _Part:
    """A part of an expression.

    Attributes:
        first, last: states in which it may begin and end.
        later: states in which it may begin if that is not at the beginning of the text.
        sure: states after which its end is certain, as nothing more is asked of the text there.
        passes: in how many ways it may be empty.
        passes_later, passes_surely: whether it may be empty where `later` and `sure` matter.
    """

    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    later: list[int] = field(default_factory=list)
    sure: list[int] = field(default_factory=list)
    passes: int = 1
    passes_later: bool = True
    passes_surely: bool = True


class _Automaton:
    """The states and steps of an expression; a step counts as often as there are ways to take it.

    Attributes:
        classes: of each state, the characters that it reads.
        steps: how many ways lead from a state to another.
    """

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        parsed = _parser.parse(pattern, flags)
        self._flags = parsed.state.flags
        text = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
        self._alphabet = frozenset(_ALPHABET + text)
        self.classes = [self._alphabet]
        self.steps: Counter[tuple[int, int]] = Counter()
        self.whole = self._in_turn(parsed)

    def _in_turn(self, items: Any) -> _Part:
        whole = _Part()
        for operation, argument in items:
            whole = self._joined(whole, self._part(str(operation), operation, argument))
        return whole

    def _joined(self, a: _Part, b: _Part) -> _Part:
        self._link(a.last, b.first)
        return _Part(
            a.first + b.first * a.passes,
            b.last + a.last * b.passes,
            a.later + (b.later if a.passes_later else []),
            b.sure + (a.sure if b.passes_surely else []),
            a.passes * b.passes,
            a.passes_later and b.passes_later,
            a.passes_surely and b.passes_surely,
        )

    def _link(self, last: list[int], first: list[int]) -> None:
        for one in last:
            for other in first:
                self.steps[one, other] += 1

    def _part(self, name: str, operation: Any, argument: Any) -> _Part:
        match name:
            case "LITERAL" | "NOT_LITERAL" | "IN" | "ANY":
                return self._state(operation, argument)
            case "AT":
                at_begin = str(argument) in ("AT_BEGINNING", "AT_BEGINNING_STRING")
                multiline = bool(self._flags & _compiler.SRE_FLAG_MULTILINE)
                return _Part(passes_later=multiline or not at_begin, passes_surely=False)
            case "ASSERT" | "ASSERT_NOT":
                if "_REPEAT" in repr(argument[1]):
                    raise _NotJudgedError("a repeat in what must follow or precede")
                return _Part(passes_surely=False)
            case "SUBPATTERN" if not argument[1] and not argument[2]:
                return self._in_turn(argument[3])
            case "BRANCH":
                return self._either([self._in_turn(branch) for branch in argument[1]])
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeated(*argument)
        raise _NotJudgedError(name)

    def _state(self, operation: Any, argument: Any) -> _Part:
        state = _parser.State()
        state.flags = self._flags
        one = _compiler.compile(_parser.SubPattern(state, [(operation, argument)]))
        self.classes.append(frozenset(each for each in self._alphabet if one.fullmatch(each)))
        at = [len(self.classes) - 1]
        return _Part(at, at, at, at, 0, passes_later=False, passes_surely=False)

    def _either(self, parts: list[_Part]) -> _Part:
        return _Part(
            [each for part in parts for each in part.first],
            [each for part in parts for each in part.last],
            [each for part in parts for each in part.later],
            [each for part in parts for each in part.sure],
            sum(part.passes for part in parts),
            any(part.passes_later for part in parts),
            any(part.passes_surely for part in parts),
        )

    def _repeated(self, least: int, most: Any, item: Any) -> _Part:
        whole = _Part()
        if most is _parser.MAXREPEAT or most > _MANY:
            whole = self._in_turn(item)
            self._link(whole.last, whole.first)
            if least == 0:
                whole = self._maybe(whole)
            least = min(least, _MANY) - 1
        else:
            for _ in range(most - least):
                whole = self._maybe(self._joined(self._in_turn(item), whole))
        if most > 1 and self._in_turn(item).passes:
            raise _NotJudgedError("a repeat of what may be empty")
        for _ in range(least):
            whole = self._joined(self._in_turn(item), whole)
        return whole

    def _maybe(self, part: _Part) -> _Part:
        return _Part(part.first, part.last, part.later, part.sure)


def why_not_linear(pattern: str | bytes, *, flags: int = 0, searches: bool = True) -> str | None:
    """Why matching may take more than linear time, or cannot be judged; None: it never does.

    Args:
        pattern: the expression.
        flags: those of `re`.
        searches: whether matches may begin anywhere in the text, not only where it begins.
    """
    try:
        made = _Automaton(pattern, flags)
    except _NotJudgedError as unknown:
        return f"not judged: {unknown}"
    after: dict[int, list[int]] = {}
    for one, other in made.steps:
        after.setdefault(one, []).append(other)
    loops = {each: _reached(after, each) for each in range(1, len(made.classes))}
    for (one, other), ways in made.steps.items():
        if ways > 1 and one in loops[other]:
            return f"a repeat in a repeat reads {_shown(made, other)} in several ways"
    if searches:
        after[_SEARCH] = [_SEARCH, *dict.fromkeys(made.whole.later)]
        loops[_SEARCH] = _reached(after, _SEARCH)
    for p, reached in loops.items():
        for q in reached - {p}:
            # What surely matches is not begun a second time.
            barred = frozenset(made.whole.sure) if p == _SEARCH else frozenset[int]()
            if p in reached and q in loops[q] and _meet(made, after, loops, barred, p, q):
                first = "a search" if p == _SEARCH else f"the repeat of {_shown(made, p)}"
                return f"{first} and the repeat of {_shown(made, q)} read the same text"
    return None


def _reached(after: dict[int, list[int]], start: int) -> set[int]:
    found: set[int] = set()
    left = [start]
    while left:
        for each in after.get(left.pop(), ()):
            if each not in found:
                found.add(each)
                left.append(each)
    return found


def _meet(
    made: _Automaton,
    after: dict[int, list[int]],
    loops: dict[int, set[int]],
    barred: frozenset[int],
    p: int,
    q: int,
) -> bool:
    """Whether one text leads from p to p, from p to q, and from q to q."""
    if q in barred:
        return False
    start, goal = (p, p, q), (p, q, q)
    seen, left = {start}, [start]
    while left:
        a, b, c = left.pop()
        for a2 in after[a]:
            if p not in loops[a2]:
                continue
            for c2 in after[c]:
                if c2 in barred or q not in loops[c2]:
                    continue
                common = made.classes[a2] & made.classes[c2]
                for b2 in after.get(b, ()):
                    place = (a2, b2, c2)
                    if place in seen or common.isdisjoint(made.classes[b2]):
                        continue
                    if place == goal:
                        return True
                    seen.add(place)
                    left.append(place)
    return False


def _shown(made: _Automaton, state: int) -> str:
    text = "".join(sorted(made.classes[state]))
    return repr(text if len(text) <= 12 else f"{text[:12]}...")
