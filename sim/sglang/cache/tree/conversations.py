"""Where the turns of conversations end in the tree: the next turn's prompt is searched from there.

A turn's prompt is the one before it, its answer and a new message. A search from the root would
compare it with a node for each message.
"""

from sim.core.tokens import Prompt, SegmentPrompt
from sim.sglang.cache.tree.radix_node import RadixNode

# So many conversations are kept before those whose KV was evicted are let go.
_FEW_CONVERSATIONS = 1024


class Turn:
    """A request of a conversation.

    Attributes:
        start: a node on the path of its prompt, for the first match; None: none is known.
    """

    __slots__ = ("conversation", "prompt", "start")

    def __init__(self, conversation: str, prompt: SegmentPrompt, start: RadixNode | None) -> None:
        self.conversation = conversation
        self.prompt = prompt
        self.start = start


class Conversations:
    """The latest turn of each conversation that a server has served, and the node at its end.

    That it names the same conversation says nothing of a prompt's tokens: they are compared, by the
    segments of both prompts. A node keeps its path while it is in the tree. `RadixCache.match`
    takes one that was evicted, too.
    """

    def __init__(self) -> None:
        self._ends: dict[str, tuple[SegmentPrompt, RadixNode]] = {}
        self._most = _FEW_CONVERSATIONS

    def __len__(self) -> int:
        return len(self._ends)

    def begin(self, conversation: str, prompt: Prompt, num_fewer: int) -> Turn | None:
        """A turn begins; None: of such a prompt, or without a conversation, nothing is kept.

        `num_fewer`: by so much a node's end is less than the number of its path's tokens.
        """
        if not conversation or not isinstance(prompt, SegmentPrompt):
            return None
        start: RadixNode | None = None
        latest = self._ends.get(conversation)
        if latest is not None:
            earlier, start = latest
            num_tokens = num_shared_tokens(prompt, earlier) - num_fewer
            while start.parent is not None and start.end > num_tokens:
                start = start.parent
        return Turn(conversation, prompt, start)

    def end(self, turn: Turn, end: RadixNode) -> None:
        """A turn is over; its latest match or insertion ended at this node."""
        self._ends[turn.conversation] = turn.prompt, end
        if len(self._ends) > self._most:
            self._ends = {key: kept for key, kept in self._ends.items() if kept[1].on_device}
            self._most = max(2 * len(self._ends), _FEW_CONVERSATIONS)


def num_shared_tokens(prompt: SegmentPrompt, other: SegmentPrompt) -> int:
    """The tokens of the whole segments with which both prompts begin."""
    ours, others = prompt.segments, other.segments
    if ours[: len(others)] == others:
        return len(other)
    num_tokens = 0
    for segment, its in zip(ours, others, strict=False):
        if segment != its:
            break
        num_tokens += segment[1]
    return num_tokens
