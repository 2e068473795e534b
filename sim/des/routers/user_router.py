"""A router of the user's own: `router: module:Class` (docs/how-to/plug-in.md#router)."""

from collections.abc import Sequence
from pathlib import Path

from sim.core.errors import KeyPath
from sim.core.request import RequestSpec
from sim.des.routers.router import Replica
from sim.user.named_class import UserClass
from sim.user.objects import ClassKind, UserObject, load_class, shown

ROUTER = ClassKind("router", "", {"choose": "spec, replicas"})
_KEY: KeyPath = ("router",)


class SeenReplica:
    """A replica as a user's router sees it: nothing but its load."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    @property
    def num_unfinished(self) -> int:
        return self._replica.num_unfinished


class GuardedRouter:
    """A user's router; raises InputError where it raises or chooses no replica."""

    def __init__(self, user: UserObject) -> None:
        self._user = user
        self.looks_at_loads = bool(user.get("looks_at_loads", True))
        self._seen: tuple[SeenReplica, ...] = ()

    def choose(self, spec: RequestSpec, replicas: Sequence[Replica]) -> int:
        if not self._seen:
            self._seen = tuple(map(SeenReplica, replicas))
        chosen = self._user.call("choose", spec, self._seen)
        if type(chosen) is not int or not 0 <= chosen < len(replicas):
            raise self._user.returned(
                "choose", f"{shown(chosen)}, not the number of a replica, 0 to {len(replicas) - 1}"
            )
        return chosen

    def changed(self, kept: Sequence[int]) -> None:
        """The replicas are others from now on; the user's router learns it if it asks for it."""
        self._seen = ()
        if self._user.has("changed"):
            self._user.call("changed", list(kept))


def make_user_router(named: UserClass, folder: Path) -> GuardedRouter:
    """A new router.

    Raises:
        InputError: the module or class does not exist, or the class is no router.
    """
    loaded = load_class(named, ROUTER, key=_KEY, folder=folder)
    return GuardedRouter(loaded.make())
