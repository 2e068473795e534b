"""Loads a class that a scenario names, makes its instances, and guards what is called of them.

Whatever is wrong with a user's class, and whatever it raises, becomes one line that names the
scenario's file and key.
"""

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from sim.core.errors import InputError, KeyPath
from sim.core.messages import shorten
from sim.user.modules import load_module
from sim.user.named_class import UserClass

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
        methods: the methods that it must have, with their arguments.
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

        Args:
            context: what the kind's constructors get first. It is left out if this one takes no
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
        """An attribute of the instance."""
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
