"""What a fact says, for tests that compare facts: most of them have no equality of their own."""

from sim.sglang.cache.tree.radix_node import PrefixMatch


def facts_of(fact: object) -> dict[str, object]:
    """The public attributes of a fact by name; those of the facts that it holds, too."""
    found = {name: getattr(fact, name) for name in dir(fact) if not name.startswith("_")}
    return {name: _told(value) for name, value in found.items() if not callable(value)}


def _told(value: object) -> object:
    is_fact = type(value).__module__.startswith("sim.") and not hasattr(type(value), "__members__")
    return facts_of(value) if is_fact else value


def end_of(match: PrefixMatch) -> list[object]:
    """Where a match ends: the nodes themselves, not what they hold."""
    ends: list[object] = [match.node, match.child, match.num_child_tokens]
    host = match.host
    return ends if host is None else [*ends, host.node, host.child, host.num_child_tokens]
