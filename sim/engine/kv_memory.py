"""What an engine needs of a server's KV memory, whichever family decides about it."""


class KVMemory:
    """A base class. Token counts are multiples of the page size.

    Attributes:
        page_size: tokens a page; a page is vLLM's block.
        num_pages: pages of the pool.
    """

    page_size: int
    num_pages: int

    @property
    def num_free_pages(self) -> int:
        """Pages that can be had without evicting what `evictable_tokens` counts."""
        raise NotImplementedError

    @property
    def evictable_tokens(self) -> int:
        """Cached tokens that no request uses, and that are not among the free ones."""
        raise NotImplementedError

    @property
    def host_used_tokens(self) -> int | None:
        """Tokens in host memory; None: there is no host tier."""
        return None

    @property
    def pool_tokens(self) -> int:
        return self.num_pages * self.page_size

    @property
    def free_tokens(self) -> int:
        return self.num_free_pages * self.page_size

    def ceil_page(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_size) * self.page_size

    def floor_page(self, num_tokens: int) -> int:
        return num_tokens // self.page_size * self.page_size

    def promise_pages(self, num_pages: int) -> None:
        """Take pages off the free ones for decode steps; which rows get them is settled later."""
        raise NotImplementedError
