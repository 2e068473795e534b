"""What the settings of any scheduler family have in common."""

from typing import Any, Protocol


class ServerConfig(Protocol):
    """Settings of one server."""

    @property
    def family(self) -> str:
        """The family's name in `sim.families.FAMILIES`."""
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
    def host_cache_tokens(self) -> int | None:
        """KV tokens of the host memory that evicted KV goes to; None: there is none."""
        ...

    def as_dict(self) -> dict[str, Any]:
        """All settings as plain values."""
        ...
