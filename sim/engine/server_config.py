"""What the settings of any scheduler family have in common."""

from typing import Any, Protocol

from sim.sglang.cache.host_settings import HostCacheSettings


class ServerConfig(Protocol):
    """Settings of one server."""

    @property
    def family(self) -> str:
        """Whose scheduler it is: `sglang` or `vllm`."""
        ...

    @property
    def page_size(self) -> int:
        """Tokens a page."""
        ...

    @property
    def pool_tokens(self) -> int:
        """KV tokens that requests can have, whole pages."""
        ...

    @property
    def overlaps(self) -> bool:
        """A step is decided while the one before runs."""
        ...

    @property
    def max_rows(self) -> int:
        """Most requests that run at a time."""
        ...

    @property
    def least_priority(self) -> int:
        """What a request without a priority counts as."""
        ...

    @property
    def host_cache(self) -> HostCacheSettings | None:
        """Memory that evicted KV goes to; None: there is none."""
        ...

    def as_dict(self) -> dict[str, Any]:
        """All settings as plain values."""
        ...
