"""The base of the suites that a user's own class can be put through."""

from typing import Any, ClassVar, Self

import pytest

from sim.user.named_class import UserClass
from sim.user.objects import ClassKind, LoadedClass, UserObject


class Contract:
    """Base class of a suite; its tests take a fixture that makes the object under test."""

    fixture: ClassVar[str]
    kind: ClassVar[ClassKind]

    @classmethod
    def of(cls, user_class: type, *context: object, **settings: Any) -> type[Self]:
        """The suite for a user's class: `TestMine = RouterContract.of(Mine, weight=2)`.

        The object under test is guarded as in a simulation. Its constructor gets the `context`, or
        else a default, and then the settings, as the scenario would give them.
        """
        named = UserClass.model_validate({"kind": f"test:{user_class.__name__}", **settings})
        loaded = LoadedClass(user_class, named, cls.kind)

        def make(self: Contract) -> Any:
            return lambda: self.guarded(loaded.make(*(context or self.context())))

        return type(cls.__name__, (cls,), {cls.fixture: pytest.fixture(make)})

    def context(self) -> tuple[object, ...]:
        """What a scenario would give the constructor."""
        return ()

    def guarded(self, user: UserObject) -> Any:
        """The object that the simulator uses."""
        raise NotImplementedError
