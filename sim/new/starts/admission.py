"""A pass considers the first requests, until their prompts exceed a number of tokens."""


class FewPrompts:
    """Selects the waiting requests that a prefill pass considers."""

    def __init__(self, config, *, most_tokens=2048):
        self.most_tokens = min(most_tokens, config.max_prefill_tokens)

    def candidates(self, waiting, num_slots):
        chosen, num_left = [], self.most_tokens
        for request in waiting:
            num_left -= request.prompt_len
            if chosen and num_left < 0:
                break
            chosen.append(request)
        return chosen
