"""The text of an answer as its client sees it: up to the first stop text."""

from collections.abc import Sequence

from sim.api.text import TextStream


class ShownText:
    """Turns tokens into text as they come. It holds back what may be the beginning of a stop text.

    Example: with the stop text `END`, the text `a E` is shown as `a `, because `ND` may follow.

    Attributes:
        has_stopped: a stop text has come.
    """

    def __init__(self, stream: TextStream, stop: Sequence[str]) -> None:
        self._stream, self._stop = stream, stop
        self._held = ""
        self.has_stopped = False

    def add(self, token_ids: Sequence[int], *, ends: bool) -> str:
        """Further text to show; with `ends`, these are the last tokens."""
        text = self._held + self._stream.add(token_ids)
        if ends:
            text += self._stream.end()
        if self.has_stopped:
            return ""
        places = [place for stop in self._stop if (place := text.find(stop)) >= 0]
        if places:
            self.has_stopped, self._held = True, ""
            return text[: min(places)]
        num_held = 0 if ends else _num_begun(text, self._stop)
        shown = len(text) - num_held
        self._held = text[shown:]
        return text[:shown]


def _num_begun(text: str, stops: Sequence[str]) -> int:
    """How many characters at the end of a text may be the beginning of a stop text."""
    return max(
        (
            size
            for stop in stops
            for size in range(1, min(len(stop) - 1, len(text)) + 1)
            if text.endswith(stop[:size])
        ),
        default=0,
    )
