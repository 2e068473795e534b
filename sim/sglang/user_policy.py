"""Users' own schedule policies: `schedule_policy: package.module:Class` (docs/how-to/policies.md).

The class is loaded here and stored in `SchedulerConfig.user_policy`. Every engine that is built
from the configuration uses it, in the simulator and on a real server.
"""

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from sim.core.errors import InputError
from sim.server_section import Fail
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import BasePolicy, ChunkRoom, QueueView, SchedulePolicy
from sim.sglang.request import SglangRequest
from sim.user_modules import load_module

_ATTRIBUTES: dict[str, tuple[type, ...]] = {
    "matches_prefixes": (bool,),
    "longest_matched_queue": (int, type(None)),
    "defers_shared_prefixes": (bool,),
}


def is_user_policy(name: str) -> bool:
    """Whether the name has the form `module:Class`; built-in names have no colon."""
    return ":" in name


def load_user_policy(
    name: str, folder: Path, fail: Fail
) -> Callable[[SchedulerConfig], SchedulePolicy]:
    """Load a user's policy; returns a function that makes it from a configuration.

    The policy is wrapped in `GuardedPolicy`, so that its mistakes become errors for the user.

    Args:
        name: `module:Class`.
        folder: the folder of the scenario, in which the module is looked for.
        fail: makes an InputError about the scenario's key from a reason.

    Raises:
        InputError: the module or class does not exist, or the class is not a policy.
    """
    cls = _load_class(name, folder, fail)

    def make(config: SchedulerConfig) -> SchedulePolicy:
        return GuardedPolicy(_construct(name, cls, config, fail), name, fail)

    make(SchedulerConfig())
    return make


class GuardedPolicy:
    """Wraps a user's policy; raises InputError where the policy raises or loses requests."""

    def __init__(self, policy: Any, name: str, fail: Fail) -> None:
        self._policy = policy
        self._name = name
        self._fail = fail
        for attribute, kinds in _ATTRIBUTES.items():
            value = getattr(policy, attribute, self)
            if type(value) not in kinds:
                words = " or ".join("None" if k is type(None) else k.__name__ for k in kinds)
                raise fail(f"{name} is no policy: {attribute} must be {words}")
        self.matches_prefixes: bool = policy.matches_prefixes
        self.longest_matched_queue: int | None = policy.longest_matched_queue
        self.defers_shared_prefixes: bool = policy.defers_shared_prefixes
        # Always call `order`: a class derived from Fcfs inherits `keeps_order` but may order.
        self.keeps_order = False
        self.cuts_while_chunked = bool(
            getattr(policy, "cuts_while_chunked", BasePolicy.cuts_while_chunked)
        )
        if not callable(getattr(policy, "order", None)) or not _takes(policy.order, 2):
            raise fail(f"{name} is no policy: it needs a method order(self, waiting, view)")

    def chunk_limit(
        self, chunked: SglangRequest, waiting: Sequence[SglangRequest], room: ChunkRoom
    ) -> int | None:
        limit = getattr(self._policy, "chunk_limit", None)
        if limit is None:
            return None
        try:
            num_tokens = limit(chunked, tuple(waiting), room)
        except (Exception, SystemExit) as error:
            raise self._fail(f"{self._name}.chunk_limit raised {_in_words(error)}") from error
        if num_tokens is not None and type(num_tokens) is not int:
            kind = type(num_tokens).__name__
            raise self._fail(f"{self._name}.chunk_limit returned {kind}, not int or None")
        return num_tokens

    def order(self, waiting: Sequence[SglangRequest], view: QueueView) -> list[SglangRequest]:
        try:
            # A tuple, so that the policy cannot change the queue itself.
            ordered = self._policy.order(tuple(waiting), view)
        except (Exception, SystemExit) as error:
            raise self._fail(f"{self._name}.order raised {_in_words(error)}") from error
        if not isinstance(ordered, list | tuple):
            kind = type(ordered).__name__
            raise self._fail(f"{self._name}.order returned {kind}, not a list of requests")
        if len(ordered) != len(waiting) or set(map(id, ordered)) != set(map(id, waiting)):
            raise self._fail(
                f"{self._name}.order returned {len(ordered)} requests, not each of the"
                f" {len(waiting)} waiting ones once"
            )
        return list(ordered)


def _load_class(name: str, folder: Path, fail: Fail) -> type:
    module_name, _, class_name = name.partition(":")
    try:
        module = load_module(module_name, folder)
    except InputError as error:
        raise fail(str(error)) from None
    except (Exception, SystemExit) as error:
        raise fail(f"module {module_name} cannot be imported: {_in_words(error)}") from error
    cls = getattr(module, class_name, None)
    if cls is None:
        raise fail(f"no class {class_name} in {module.__file__}")
    if not isinstance(cls, type) or not _takes(cls, 1):
        raise fail(f"{name} is no policy: it must be a class that takes a SchedulerConfig")
    return cls


def _construct(name: str, cls: type, config: SchedulerConfig, fail: Fail) -> Any:
    try:
        return cls(config)
    except (Exception, SystemExit) as error:
        raise fail(f"{name} raised {_in_words(error)}") from error


def _takes(function: Callable[..., Any], num_arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * num_arguments)
    except (TypeError, ValueError):
        return False
    return True


def _in_words(error: BaseException) -> str:
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
