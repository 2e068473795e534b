"""Evicts the far ends of long prompts first, because few requests share them."""


class FarEndsFirst:
    """Ranks the nodes of the prefix cache: the leaf with the lowest rank is evicted first."""

    def __init__(self, *, bucket_tokens=256):
        self.bucket_tokens = bucket_tokens

    def rank(self, node):
        return -(node.end // self.bucket_tokens), node.last_used_tick
