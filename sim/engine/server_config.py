"""The settings that every family has, roles of servers, and who hears of shared requests."""

from typing import Any, Protocol

# A server computes whole requests, or their prompts only, or all that follows their prompts.
BOTH = "both"
PREFILL = "prefill"
DECODE = "decode"


class Partner(Protocol):
    """Hears what happens on a server to requests that it shares with another server."""

    def allocated(self, rid: str, num_cached_tokens: int) -> None:
        """A decode server has allocated the KV of a prompt; its first tokens are cached there."""

    def computed(self, rid: str, num_tokens: int, *, is_last: bool, from_ns: int = 0) -> None:
        """A prefill server has computed the KV of a prompt's first tokens: they may be sent.

        If it has not computed them before `from_ns`, they may be sent from then on.
        """


class _NoPartner:
    """Hears nothing: for servers that share no requests, and for engines that run alone."""

    def allocated(self, rid: str, num_cached_tokens: int) -> None:
        """Do nothing."""

    def computed(self, rid: str, num_tokens: int, *, is_last: bool, from_ns: int = 0) -> None:
        """Do nothing."""


NO_PARTNER: Partner = _NoPartner()


class ServerConfig(Protocol):
    """Settings of one server."""

    @property
    def family(self) -> str:
        """The family's name in `sim.families.FAMILIES`."""

    @property
    def page_size(self) -> int:
        """Tokens in a page."""

    @property
    def pool_tokens(self) -> int:
        """KV tokens of the pool; a multiple of the page size."""

    @property
    def overlaps(self) -> bool:
        """Overlap scheduling: whether a step is decided while the one before runs."""

    @property
    def micro_batches(self) -> int:
        """Steps that a pipeline may have in flight, each with requests of its own; 1: no pipeline.

        A pipeline whose stages work one after another has 1, too.
        """

    @property
    def max_rows(self) -> int:
        """Largest number of requests that run at a time."""

    @property
    def host_cache_tokens(self) -> int | None:
        """KV tokens that fit into the host memory for evicted KV; None without such memory."""

    def as_dict(self) -> dict[str, Any]:
        """All settings as plain values."""


def context_tokens(config: ServerConfig) -> int:
    """Most tokens of a prompt and its answer: the context, or the pool in a family without one."""
    for name in ("context_length", "max_model_len"):
        tokens = getattr(config, name, None)
        if tokens is not None:
            return int(tokens)
    return config.pool_tokens


def goes_row_by_row(config: ServerConfig) -> bool:
    """Whether a server's rows do not move in lockstep, so that each has counters of its own.

    With draft tokens, rows get different numbers of tokens in a step. In a pipeline, a step leaves
    out the rows that are in flight. With groups of layers, each row frees blocks in its own time.
    If outputs are kept in CPU memory, each fills blocks to be stored there in its own time.
    An installed engine says of each row what it computes.
    """
    if not getattr(config, "in_lockstep", True) or getattr(config, "engine", None) is not None:
        return True
    offload = getattr(config, "offload", None)
    if offload is not None and (offload.is_simple or not offload.offload_prompt_only):
        return True
    has_drafts = getattr(config, "speculation", None) is not None
    return has_drafts or config.micro_batches > 1 or bool(getattr(config, "kv_cache_groups", ()))
