"""Roles of servers, and what a server tells about requests that it shares with another one."""

from typing import Protocol

# A server computes whole requests, or their prompts only, or all that follows their prompts.
BOTH = "both"
PREFILL = "prefill"
DECODE = "decode"


class Partner(Protocol):
    """Hears what happens on a server to requests that it shares with another server."""

    def room_made(self, rid: str, num_cached_tokens: int) -> None:
        """A decode server has allocated the KV of a prompt; its first tokens are cached there."""

    def computed(self, rid: str, num_tokens: int, *, is_last: bool) -> None:
        """A prefill server has computed the KV of a prompt's first tokens: they may be sent."""


class _NoPartner:
    """Hears nothing: for servers that share no requests, and for engines that run alone."""

    def room_made(self, rid: str, num_cached_tokens: int) -> None:
        """Do nothing."""

    def computed(self, rid: str, num_tokens: int, *, is_last: bool) -> None:
        """Do nothing."""


NO_PARTNER: Partner = _NoPartner()
