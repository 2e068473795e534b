"""Turns pydantic's list of errors into the one line that a user needs.

`key_names.toml` has what engines and people call the keys of a scenario.
"""

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from sim.core.errors import InputError, KeyPath, describe, did_you_mean, one_line, unknown_value
from sim.scenario.key_locations import ErrorPlace, KeyLocations, Sections
from sim.scenario.schema import BESIDE_THE_RUN
from sim.validation import KeysError


class _Setting(NamedTuple):
    """A setting that both engines have, see `key_names.toml`."""

    sglang: str
    vllm: str
    others: str = ""
    is_opposite: bool = False


_NAMES = tomllib.loads((files("sim.scenario") / "key_names.toml").read_text(encoding="utf-8"))
_SETTINGS = [_Setting(**each) for each in _NAMES["setting"]]
_ELSEWHERE: Mapping[str, frozenset[str]] = {
    key: frozenset(names.split()) for key, names in _NAMES["elsewhere"].items()
}
_REMOVED: Mapping[str, str] = _NAMES["removed"]


def hint(path: KeyPath, siblings: Collection[str]) -> str | None:
    """What to write for a key that the section with these keys does not have; None: not known."""
    name = str(path[-1])
    found = _in_scheduler(name, siblings)
    if found is None and name in _REMOVED and len(path) > 1:
        return _REMOVED[name]
    return found or _elsewhere(path, siblings)


def _in_scheduler(name: str, siblings: Collection[str]) -> str | None:
    for setting in _SETTINGS:
        own, other = setting.sglang, setting.vllm
        families = "sglang", "vllm"
        if own not in siblings:
            # The section is one of family vllm.
            own, other, families = other, own, ("vllm", "sglang")
        if own in siblings and name == other:
            means = "says the opposite" if setting.is_opposite else "is its counterpart"
            return f"family {families[1]} has it; in family {families[0]} {own} {means}"
        if own in siblings and name in setting.others.split():
            return f"did you mean {own}?"
    return None


def _elsewhere(path: KeyPath, siblings: Collection[str]) -> str | None:
    name = str(path[-1])
    key = next((key for key, names in _ELSEWHERE.items() if name in names), None)
    if key is None:
        return None
    section, inner, *_ = (*key.split("."), "")
    if len(path) == 1 or path[0] != section or inner in siblings:
        return f"did you mean {key}?"
    # A section of this kind may have the key under one of the other names.
    same = sorted(_ELSEWHERE[key].intersection(siblings))
    if same:
        return f"did you mean {same[0]}?"
    return None if name == inner else f"other kinds have {key}"


# The words for pydantic's types of errors: what a value must be, whole reasons, and bounds with the
# key of the error's context that has the bound.
_NOUNS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
}
_FIXED = {
    "missing": "is required",
    "union_tag_not_found": "is required",
    "string_too_short": "must not be empty",
    "too_short": "must have {min_length} or more items, got {actual_length}",
}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("greater than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
    "multiple_of": ("a multiple of", "multiple_of"),
}
_MAX_LISTED = 12
# Keys that earlier versions had, and what they are called now.
_RENAMED: Mapping[KeyPath, str] = {("plan", "apart"): "plan.disaggregated"}
# A file with more problems is no scenario; the rest of them is not looked at.
_MAX_PROBLEMS = 200
_QUOTED = re.compile(r"'([^']*)'")


class ContradictionError(InputError):
    """Values that are each allowed, but not together."""


@dataclass(frozen=True, slots=True)
class _Problem:
    """One pydantic error and the key of the user's data that it is about."""

    place: ErrorPlace
    kind: str
    value: Any
    context: Mapping[str, Any]
    text: str


def explain(error: ValidationError, model: type[BaseModel], locations: KeyLocations) -> InputError:
    """The error that comes first in the file, as `label: key.path: reason (did you mean x?)`.

    The data were validated as `model`, and their keys written at `locations`.
    """
    sections = Sections.of(model)
    problems = _without_noise(
        [
            _Problem(
                place=sections.locate(item["loc"]),
                kind=item["type"],
                value=item["input"],
                context=item.get("ctx", {}),
                text=item["msg"],
            )
            for item in error.errors(include_url=False)[:_MAX_PROBLEMS]
        ]
    )
    places = locations.positions()
    blamed = [_blamed(problem, _path_of(problem), locations) for problem in problems]
    first = min(range(len(problems)), key=lambda i: places[locations.nearest(blamed[i])])
    problem = problems[first]
    path, reason = _path_of(problem), _reason(problem, problems, sections)
    kind = ContradictionError if _is_contradiction(problem) else InputError
    return kind(one_line(locations.message(path, reason, blamed=blamed[first])))


def _path_of(problem: _Problem) -> KeyPath:
    # Pydantic reports a wrong `kind` at the section, but the user needs the key.
    if problem.kind in {"union_tag_invalid", "union_tag_not_found"}:
        return (*problem.place.path, _discriminator(problem))
    return problem.place.path


def _discriminator(problem: _Problem) -> str:
    return str(problem.context["discriminator"]).strip("'")


def _blamed(problem: _Problem, path: KeyPath, locations: KeyLocations) -> KeyPath:
    """The key whose line the message shows. For a contradiction it is one of the keys in it."""
    error = problem.context.get("error")
    if not _is_contradiction(problem) or not isinstance(error, KeysError):
        return path
    written = [(*path, key) for key in error.keys if key in problem.value]
    return locations.key_to_blame(written) if written else path


def _is_contradiction(problem: _Problem) -> bool:
    return problem.kind == "value_error" and isinstance(problem.value, dict)


def _without_noise(problems: list[_Problem]) -> list[_Problem]:
    """Leave out the errors that only follow from another one."""
    meant = {
        (*p.place.path[:-1], near)
        for p in problems
        if p.kind == "extra_forbidden"
        and (near := did_you_mean(p.place.path[-1], p.place.siblings)) is not None
    }
    return [p for p in problems if not _is_noise(p, problems, meant)]


def _is_noise(problem: _Problem, problems: list[_Problem], meant: set[KeyPath]) -> bool:
    path = problem.place.path
    if problem.kind == "missing":
        # The user misspelled this key, and the misspelled key is reported as unknown.
        return path in meant
    below = any(p.place.path[: len(path)] == path != p.place.path for p in problems)
    if problem.kind == "too_short":
        # Pydantic counts valid items only. The invalid ones are reported.
        return below
    if problem.place.in_union and problem.kind == "literal_error":
        # It is no name, but a list or section with an error of its own.
        return below
    if problem.place.in_union and problem.kind in _NOUNS:
        # The value fits another type of the union, and the error for that type is reported.
        return below or any(p.place.path == path and p.kind not in _NOUNS for p in problems)
    return False


def _reason(problem: _Problem, problems: list[_Problem], sections: Sections) -> str:
    kind, context = problem.kind, problem.context
    if kind in _FIXED:
        return _FIXED[kind].format_map(context)
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"must be {words} {_plain(context[key])}, got {describe(problem.value)}"
    if kind in _NOUNS:
        # A union of several types reports an error for each of them, all at the same key.
        same_place = [p for p in problems if p.place.path == problem.place.path]
        nouns = dict.fromkeys(_NOUNS[p.kind] for p in same_place if p.kind in _NOUNS)
        return f"must be {' or '.join(nouns)}, got {describe(problem.value)}"
    if kind == "extra_forbidden":
        return _unknown_key(problem.place, sections)
    if kind in {"union_tag_invalid", "literal_error"}:
        return _unknown_name(problem)
    error = context.get("error")
    return problem.text if error is None else str(error)


def _plain(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


def _unknown_key(place: ErrorPlace, sections: Sections) -> str:
    if place.path in _RENAMED:
        return f"is called {_RENAMED[place.path]} now"
    words = hint(place.path, place.siblings) or _similar_keys(place, sections)
    return "unknown key" if words is None else f"unknown key ({words})"


def _similar_keys(place: ErrorPlace, sections: Sections) -> str | None:
    """A hint: the key spelled most alike; or where a key of this name belongs; or all keys."""
    key = str(place.path[-1])
    near = did_you_mean(key, place.siblings)
    if near is None and place.path[1:] == (key,):
        family = sections.family_with(str(place.path[0]), key)
        if family is not None:
            return f"family {family} has it"
    is_nested = len(place.path) > 1
    if near is None and is_nested and key in sections.top_level:
        return f"{key} stands at the top of a scenario"
    if near is None:
        elsewhere = sections.sections_with(key)
        if is_nested:
            # A key of a server is not meant for a search or a table.
            elsewhere = [name for name in elsewhere if name not in BESIDE_THE_RUN]
        if len(elsewhere) == 1:
            near = f"{elsewhere[0]}.{key}"
    if near is not None:
        return f"did you mean {near}?"
    return None if len(place.siblings) > _MAX_LISTED else f"known: {', '.join(place.siblings)}"


def _unknown_name(problem: _Problem) -> str:
    if problem.kind == "literal_error":
        expected = str(problem.context["expected"])
        # Pydantic quotes names, not numbers: '1, 2 or 4' lists three numbers.
        known = _QUOTED.findall(expected) or expected.replace(" or ", ", ").split(", ")
        return unknown_value("value", problem.value, known)
    kind = _discriminator(problem)
    known = _QUOTED.findall(str(problem.context["expected_tags"]))
    return unknown_value(kind, problem.value[kind], known)
