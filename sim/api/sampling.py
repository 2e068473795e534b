"""How the tokens of an answer are chosen, and where it ends. Simulated servers ignore this."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a client asks for; None: the server's default.

    Attributes:
        temperature: divides the logits; 0: always the most likely token.
        top_p: only the most likely tokens that together have this probability.
        top_k: only this number of most likely tokens; -1 and 0: all.
        min_p: only tokens with at least this share of the most likely token's probability.
        seed: the same seed, prompt and settings give the same tokens; None: any.
        stop: texts that end the answer. They are no part of it.
        stop_token_ids: tokens that end the answer. They are no part of its text.
        not_followed: a setting of the client that no real server here follows, although it would
            have to; None: there is none.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    not_followed: str | None = None


AS_THE_SERVER = Sampling()
