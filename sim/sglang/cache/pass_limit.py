"""What limits a prefill pass beside the tokens of the KV pool."""


class PassLimit:
    """Base class of a further limit of one prefill pass, in tokens of a pool of its own.

    Token counts of prompts are in whole pages. `chunk_tokens` is the largest part of a prompt that
    the step computes; None: all of it.
    """

    @property
    def left(self) -> int:
        """Tokens that are not reserved; may be negative."""
        raise NotImplementedError

    def needed(self, extend_len: int, output_len: int, chunk_tokens: int | None) -> int:
        """The most tokens that a request needs at a time.

        Args:
            extend_len: tokens that are to be computed, of all chunks.
            output_len: tokens that may be generated.
            chunk_tokens: see the class.
        """
        raise NotImplementedError

    def reserve(self, extend_len: int, output_len: int, chunk_tokens: int | None) -> None:
        """Reserve what an admitted request needs."""
        raise NotImplementedError

    def fits(
        self, extend_len: int, output_len: int, chunk_tokens: int | None, load_len: int
    ) -> bool:
        """Whether a request fits; `load_len` further tokens of it are loaded from host memory."""
        raise NotImplementedError

    def largest_chunk(
        self, extend_len: int, output_len: int, chunk_tokens: int | None, load_len: int
    ) -> int:
        """The largest first chunk of a request that does not fit; 0: it has to wait."""
        raise NotImplementedError
