"""A Python class of the user that a scenario names, loaded, and guarded when it is called.

Wherever a key takes such a class, it takes the name alone, or a section with the name as its `kind`
and the class's own settings beside it. `OrUserClass` makes a section's type accept both.

Whatever is wrong with a user's class, and whatever it raises, becomes one line that names the
scenario's file and key.
"""

import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import reduce
from operator import or_
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from sim.core.errors import InputError, KeyPath, shorten
from sim.user.modules import load_module

_MAX_INTEGER = 2**63 - 1


class UserClass(BaseModel):
    """A class of the user's own: `kind` is `module:Class`, all other keys are its settings."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    kind: str

    @property
    def settings(self) -> dict[str, Any]:
        """Keyword arguments of its constructor: plain values, lists and mappings."""
        return dict(self.__pydantic_extra__ or {})

    def plain(self) -> Any:
        """The section as the scenario would write it: the name alone if there are no settings."""
        return {"kind": self.kind, **self.settings} if self.settings else self.kind

    def __str__(self) -> str:
        plain = self.plain()
        return plain if isinstance(plain, str) else json.dumps(plain)


class OrUserClass:
    """Annotates a union `... | UserClass`: text with a colon, or as a `kind`, names a class.

    Anything else is validated, and described by the JSON schema, as if there were no `UserClass`.
    """

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        others = handler(reduce(or_, [arm for arm in get_args(source) if arm is not UserClass]))
        dump = core_schema.wrap_serializer_function_ser_schema(_dump, schema=others)
        return core_schema.no_info_wrap_validator_function(_validate, others, serialization=dump)


def names_class(value: object) -> bool:
    """Whether a value names a user's class; built-in names have no colon."""
    return isinstance(value, str) and ":" in value


def check_name(name: str) -> None:
    """Raise ValueError unless the name has the form `module:Class`."""
    module, _, cls = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), cls)):
        raise ValueError(f"must be a name or module:Class, got {shorten(repr(name))}")


def _validate(value: Any, handler: Callable[[Any], Any]) -> Any:
    if isinstance(value, UserClass):
        return value
    name = value.get("kind") if isinstance(value, dict) else value
    if not isinstance(name, str) or not names_class(name):
        return handler(value)
    check_name(name)
    data = value if isinstance(value, dict) else {"kind": value}
    for key, setting in data.items():
        if not isinstance(key, str) or not _is_plain(setting):
            raise ValueError(f"{shorten(str(key))} is too large, or no plain value")
    return UserClass.model_validate(data)


def _is_plain(value: Any) -> bool:
    """Whether a value can be written to JSON: YAML's values always can, those of a log may not."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str) or abs(value) <= _MAX_INTEGER


def _dump(value: Any, handler: Callable[[Any], Any]) -> Any:
    return value.plain() if isinstance(value, UserClass) else handler(value)


# The key of the section `scheduler` that names an installed engine (`sim.installed`).
ENGINE_KEY = "engine"
_MAY_NAME = (BaseModel, UserClass, list, tuple)


def user_classes(section: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """All code that a validated section names, in any key: the key path and the name.

    It is users' classes, and the folder of an installed engine.

    This is how the project knows whether a scenario names code.
    """
    if isinstance(section, UserClass):
        yield path, section.kind
    elif isinstance(section, BaseModel):
        family = getattr(section, "family", None)
        if isinstance(family, str) and ":" in family:
            yield (*path, "family"), family
        engine = getattr(section, ENGINE_KEY, None)
        if isinstance(engine, str):
            yield (*path, ENGINE_KEY), engine
        for key in type(section).model_fields:
            value = getattr(section, key)
            # Most values are numbers and words, and a sweep has 100,000 scenarios.
            if isinstance(value, _MAY_NAME):
                yield from user_classes(value, (*path, key))
    elif isinstance(section, list | tuple):
        for index, item in enumerate(section):
            yield from user_classes(item, (*path, index))


# Makes an error about a key of the scenario, from the key and a reason.
FailAt = Callable[[KeyPath, str], InputError]


def fail_at_key(key: KeyPath, reason: str) -> InputError:
    """An error about a key, to which code that knows the scenario's file adds file and line."""
    return InputError(reason, key=key)


class ClassKind(NamedTuple):
    """What a class must be to be named by a key.

    Attributes:
        noun: what it is, for example `router`.
        gets: the type of what its constructor is given first; empty: nothing.
    """

    noun: str
    gets: str
    methods: Mapping[str, str]


class LoadedClass:
    """A user's class, and the key of the scenario that names it. See `load_class`.

    Raises:
        InputError: it is no class, or its constructor takes no such settings.
    """

    def __init__(
        self,
        cls: Any,
        named: UserClass,
        kind: ClassKind,
        *,
        key: KeyPath = (),
        fail_at: FailAt = fail_at_key,
    ) -> None:
        self.name = named.kind
        self.kind = kind
        self._settings = named.settings
        self._key = key
        self._fail_at = fail_at
        if not isinstance(cls, type):
            raise self.refuse("it must be a class")
        self._cls = cls
        self._takes_context = self._check_constructor()

    def fail(self, reason: str) -> InputError:
        return self._fail_at(self._key, reason)

    def make(self, *context: object) -> "UserObject":
        """A new instance.

        `context` is what the kind's constructors get first. It is left out if this one takes no
        argument but its settings.
        """
        given = context if self._takes_context else ()
        with self.guarded(""):
            made = self._cls(*given, **self._settings)
        return UserObject(made, self)

    def guarded(self, method: str) -> "_Guard":
        """A context in which whatever the user's code raises becomes an error about the key."""
        return _Guard(self, method)

    def refuse(self, reason: str) -> InputError:
        """The error that the class is not of its kind."""
        return self.fail(f"{self.name} is no {self.kind.noun}: {reason}")

    def _check_constructor(self) -> bool:
        """Verify that it takes the settings; returns whether it takes a context before them."""
        try:
            signature = inspect.signature(self._cls)
        except (TypeError, ValueError):
            raise self.refuse("nobody can see what its constructor takes") from None
        for context in ((None,), ()) if self.kind.gets else ((),):
            with suppress(TypeError):
                signature.bind(*context, **self._settings)
                return bool(context)
        raise self._wrong_settings(signature)

    def _wrong_settings(self, signature: inspect.Signature) -> InputError:
        takes = list(signature.parameters.values())
        named = [p for p in takes if p.kind in {p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD}]
        known = {parameter.name for parameter in named}
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes):
            for setting in self._settings:
                if setting not in known:
                    return self._fail_at((*self._key, setting), f"{self.name} has no such setting")
        if self.kind.gets and takes and takes[0].kind is takes[0].POSITIONAL_OR_KEYWORD:
            named = named[1:]
        lacking = [p.name for p in named if p.default is p.empty and p.name not in self._settings]
        if lacking:
            return self.fail(f"{self.name} needs the setting {', '.join(lacking)}")
        gets = f"a {self.kind.gets}, and then " if self.kind.gets else ""
        return self.refuse(f"its constructor must take {gets}settings by name")


class _Guard:
    """See `LoadedClass.guarded`; a class, because it is entered at every call."""

    __slots__ = ("_loaded", "_method")

    def __init__(self, loaded: LoadedClass, method: str) -> None:
        self._loaded = loaded
        self._method = method

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if isinstance(error, Exception | SystemExit):
            called = f".{self._method}" if self._method else ""
            raise self._loaded.fail(
                f"{self._loaded.name}{called} raised {in_words(error)}"
            ) from error


class UserObject:
    """An instance of a user's class.

    Raises:
        InputError: a method of its kind is missing, or takes other arguments.
    """

    def __init__(self, instance: Any, loaded: LoadedClass) -> None:
        self.instance = instance
        self.loaded = loaded
        for method, arguments in loaded.kind.methods.items():
            num_arguments = len(arguments.split(","))
            if not self.has(method) or not _takes(self.get(method), num_arguments):
                raise loaded.refuse(f"it needs a method {method}(self, {arguments})")

    def get(self, attribute: str, default: object = None) -> Any:
        with self.loaded.guarded(attribute):
            return getattr(self.instance, attribute, default)

    def has(self, method: str) -> bool:
        return callable(self.get(method))

    def call(self, method: str, *arguments: object) -> Any:
        """What the user's method returns."""
        with self.loaded.guarded(method):
            return getattr(self.instance, method)(*arguments)

    def returned(self, method: str, what: str) -> InputError:
        """The error that a method returned something else than it must."""
        return self.loaded.fail(f"{self.loaded.name}.{method} returned {what}")


def load_class(
    named: UserClass,
    kind: ClassKind,
    *,
    key: KeyPath,
    folder: Path,
    fail_at: FailAt = fail_at_key,
) -> LoadedClass:
    """Import the class that a key's value names; `folder` is that of the scenario.

    `fail_at` makes errors about the key.
    """
    module_name, _, class_name = named.kind.partition(":")
    try:
        module = load_module(module_name, folder)
    except InputError as error:
        raise fail_at(key, str(error)) from None
    except (Exception, SystemExit) as error:
        reason = f"module {module_name} cannot be imported: {in_words(error)}"
        raise fail_at(key, reason) from error
    cls = getattr(module, class_name, None)
    if cls is None:
        raise fail_at(key, f"no class {class_name} in {module.__file__}")
    return LoadedClass(cls, named, kind, key=key, fail_at=fail_at)


def in_words(error: BaseException) -> str:
    """For example `ValueError: reason (my_policy.py:12)`, with the line that raised."""
    text = type(error).__name__
    with suppress(Exception):  # its own words may raise, too
        text = f"{text}: {error}"
    at: TracebackType | None = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None or at.tb_frame.f_code.co_filename.startswith("<"):
        return text
    return f"{text} ({Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno})"


def shown(value: object) -> str:
    """What a user's method returned, for a message."""
    with suppress(Exception):  # its own words may raise
        return shorten(repr(value))
    return type(value).__name__


def _takes(function: Callable[..., Any], num_arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * num_arguments)
    except (TypeError, ValueError):
        return False
    return True
