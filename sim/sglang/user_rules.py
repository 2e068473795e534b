"""Users' own scheduling rules: policy, eviction, fairness and admission (docs/how-to/plug-in.md).

Each class is loaded here and stored in `SchedulerConfig.user`. Every engine that is built from the
configuration makes its own instance, in the simulator and on a real server.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sim.engine.scheduler import NEVER_AGES_NS
from sim.engine.server_config import BOTH
from sim.sglang.cache.tree.radix_node import LeafQueue, RadixNode
from sim.sglang.config import SchedulerConfig, UserRule, UserRules
from sim.sglang.policies.policy import BasePolicy, ChunkRoom, Keeper, QueueView
from sim.sglang.request import SglangRequest
from sim.sglang.served import Served
from sim.user.objects import (
    ClassKind,
    FailAt,
    UserClass,
    UserObject,
    fail_at_key,
    load_class,
    shown,
)

_CONFIG = "SchedulerConfig"
POLICY = ClassKind("policy", _CONFIG, {"order": "waiting, view"})
EVICTION = ClassKind("eviction policy", _CONFIG, {"rank": "node"})
FAIRNESS = ClassKind("fairness rule", _CONFIG, {"reorder": "ordered, now_ns, deferred"})
ADMISSION = ClassKind("admission", _CONFIG, {"candidates": "waiting, num_slots"})

_ATTRIBUTES: dict[str, tuple[type, ...]] = {
    "matches_prefixes": (bool,),
    "longest_matched_queue": (int, type(None)),
    "defers_shared_prefixes": (bool,),
}


class GuardedPolicy:
    """A user's policy; raises InputError where the policy raises or loses requests."""

    def __init__(self, user: UserObject) -> None:
        self._user = user
        for attribute, kinds in _ATTRIBUTES.items():
            value = user.get(attribute, self)
            if type(value) not in kinds:
                words = " or ".join("None" if k is type(None) else k.__name__ for k in kinds)
                raise user.loaded.refuse(f"{attribute} must be {words}")
        self.matches_prefixes: bool = user.get("matches_prefixes")
        self.longest_matched_queue: int | None = user.get("longest_matched_queue")
        self.defers_shared_prefixes: bool = user.get("defers_shared_prefixes")
        # Always call `order`: a class derived from Fcfs inherits `keeps_order` but may order.
        self.keeps_order = False
        self.cuts_while_chunked = bool(
            user.get("cuts_while_chunked", BasePolicy.cuts_while_chunked)
        )
        self._limits_chunks = user.has("chunk_limit")
        self.keeper: Keeper | None = self if user.has("keep_ns") else None

    def chunk_limit(
        self, chunked: SglangRequest, waiting: Sequence[SglangRequest], room: ChunkRoom
    ) -> int | None:
        if not self._limits_chunks:
            return None
        num_tokens = self._user.call("chunk_limit", chunked, tuple(waiting), room)
        if num_tokens is not None and type(num_tokens) is not int:
            raise self._user.returned(
                "chunk_limit", f"{type(num_tokens).__name__}, not int or None"
            )
        return num_tokens

    def keep_ns(self, request: SglangRequest, now_ns: int) -> int:
        time_ns = self._user.call("keep_ns", request, now_ns)
        if type(time_ns) is not int or time_ns < 0:
            raise self._user.returned("keep_ns", f"{shown(time_ns)}, not an int of at least 0")
        return min(time_ns, NEVER_AGES_NS)

    def order(self, waiting: Sequence[SglangRequest], view: QueueView) -> list[SglangRequest]:
        # A tuple, so that the policy cannot change the queue itself.
        return _permuted(self._user, "order", waiting, tuple(waiting), view)


class GuardedFairness:
    """A user's fairness rule; raises InputError where it raises or loses requests."""

    def __init__(self, user: UserObject) -> None:
        self._user = user
        self._counts = user.has("note_admitted")
        self._ages = user.has("ages_ns")

    def reorder(
        self, ordered: list[SglangRequest], now_ns: int, deferred: frozenset[int]
    ) -> list[SglangRequest]:
        return _permuted(self._user, "reorder", ordered, list(ordered), now_ns, deferred)

    def note_admitted(self, num_requests: int) -> None:
        if self._counts:
            self._user.call("note_admitted", num_requests)

    def ages_ns(self, request: SglangRequest) -> int:
        if not self._ages:
            return NEVER_AGES_NS
        time_ns = self._user.call("ages_ns", request)
        if type(time_ns) is not int:
            raise self._user.returned("ages_ns", f"{type(time_ns).__name__}, not int")
        return min(max(time_ns, 0), NEVER_AGES_NS)


class GuardedAdmission:
    """A user's admission; raises InputError where it raises, or selects what does not wait.

    It may select nothing while requests run; if none does, nothing would ever change.
    """

    def __init__(self, user: UserObject) -> None:
        self._user = user
        self._served = Served()

    def candidates(
        self, waiting: Sequence[SglangRequest], num_slots: int
    ) -> Sequence[SglangRequest]:
        chosen = self._user.call("candidates", tuple(waiting), num_slots)
        if not isinstance(chosen, list | tuple):
            raise self._user.returned(
                "candidates", f"{type(chosen).__name__}, not a list of requests"
            )
        wanted = iter(waiting)
        if not all(any(request is each for each in wanted) for request in chosen):
            raise self._user.returned(
                "candidates", "requests that do not wait, or not in the order of the queue"
            )
        self._served.since_last(waiting)
        if waiting and not chosen and not self._served.running:
            raise self._user.returned(
                "candidates", f"none of {len(waiting)} waiting requests, and none runs"
            )
        return chosen


def guarded_eviction(user: UserObject) -> LeafQueue:
    """The queue of leaves that a user's eviction policy ranks."""

    def rank(node: RadixNode) -> tuple[float, ...]:
        value = user.call("rank", node)
        numbers = value if isinstance(value, tuple) else (value,)
        if any(not isinstance(each, int | float) or math.isnan(each) for each in numbers):
            raise user.returned("rank", f"{shown(value)}, not a number or a tuple of numbers")
        return numbers

    def count(node: RadixNode) -> None:
        user.call("count", node)

    return LeafQueue(rank, count if user.has("count") else None, fail=user.loaded.fail)


GUARDS: dict[str, tuple[ClassKind, Callable[[UserObject], Any]]] = {
    "schedule_policy": (POLICY, GuardedPolicy),
    "radix_eviction_policy": (EVICTION, guarded_eviction),
    "fairness": (FAIRNESS, GuardedFairness),
    "admission": (ADMISSION, GuardedAdmission),
}


def load_user_rule(key: str, named: UserClass, folder: Path, fail_at: FailAt) -> UserRule:
    """Load the class that a key of the section names; an instance is made to try it.

    Raises InputError: the module or class does not exist, or the class is none for this key.
    """
    kind, guard = GUARDS[key]
    loaded = load_class(named, kind, key=("scheduler", key), folder=folder, fail_at=fail_at)

    def make(config: SchedulerConfig) -> Any:
        return guard(loaded.make(config))

    make(SchedulerConfig())
    return UserRule(str(named), make)


def load_user_rules(section: object, folder: Path, fail_at: FailAt) -> UserRules:
    """Load all classes that a section names.

    Raises InputError: see `load_user_rule`.
    """
    named = {key: getattr(section, key) for key in GUARDS}
    return UserRules(
        **{
            key: load_user_rule(key, value, folder, fail_at)
            for key, value in named.items()
            if isinstance(value, UserClass)
        }
    )


def check_keeper(config: SchedulerConfig, fail_at: FailAt = fail_at_key) -> None:
    """Refuse a policy that keeps KV where that is not simulated.

    Raises InputError: the server has a second pool, or another role.
    """
    policy = config.own_rule("schedule_policy")
    if policy is None or policy.keeper is None:
        return
    for is_so, what in (
        (config.window is not None, "windows"),
        (config.states is not None, "states"),
        (config.role != BOTH, f"servers of role {config.role}"),
    ):
        if is_so:
            reason = f"its keep_ns is not simulated with {what}"
            raise fail_at(("scheduler", "schedule_policy"), reason)


def _permuted(
    user: UserObject, method: str, requests: Sequence[SglangRequest], *arguments: object
) -> list[SglangRequest]:
    """What a method returns, if it is each of the requests once."""
    ordered = user.call(method, *arguments)
    if not isinstance(ordered, list | tuple):
        raise user.returned(method, f"{type(ordered).__name__}, not a list of requests")
    if len(ordered) != len(requests) or set(map(id, ordered)) != set(map(id, requests)):
        raise user.returned(
            method,
            f"{len(ordered)} requests, not each of the {len(requests)} waiting ones once",
        )
    return list(ordered)
