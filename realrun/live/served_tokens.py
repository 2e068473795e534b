"""The tokens of answers that a model generates for clients, and what ends them."""

from collections.abc import Sequence
from dataclasses import dataclass

from realrun.tokens.outputs import GreedyTokens
from realrun.tokens.sampling import SamplingParams
from sim.api.answer import ShownText, Texts
from sim.workload.workload import ScriptedRequest


@dataclass(frozen=True, slots=True)
class AnswerParams:
    """What a client wants of its answer.

    Attributes:
        sampling: how its tokens are chosen.
        stop: texts that end it.
        stop_token_ids: tokens that end it, besides the model's end tokens.
    """

    sampling: SamplingParams
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()


class _StopTexts:
    """Looks for stop texts in an output that grows."""

    def __init__(self, texts: Texts, stop: tuple[str, ...]) -> None:
        self._texts, self._stop = texts, stop
        self._begin()

    def _begin(self) -> None:
        self._shown = ShownText(self._texts.stream(), self._stop)
        self._seen: list[int] = []

    def found(self, output: Sequence[int]) -> bool:
        """Whether the text of an output has come to one of them."""
        if self._seen != output[: len(self._seen)]:
            # Its last tokens were drafts, or were computed again after it had been put back.
            self._begin()
        new = output[len(self._seen) :]
        self._shown.add(new, ends=False)
        self._seen += new
        return self._shown.has_stopped


class ServedTokens(GreedyTokens):
    """Answers end with an end token of the model, or with what their clients named.

    `sampling_params` says how the tokens of requests are chosen; one that is missing takes the most
    likely ones. `expect` is called by the clients' thread before it submits a request; all else
    is for the server's thread.
    """

    def __init__(self, vocab_size: int, end_ids: frozenset[int], texts: Texts) -> None:
        super().__init__(vocab_size, end_ids)
        self.sampling_params: dict[str, SamplingParams] = {}
        self._texts = texts
        self._params: dict[str, AnswerParams] = {}
        self._stop_texts: dict[str, _StopTexts] = {}
        self._ended: dict[str, int] = {}

    def expect(self, rid: str, params: AnswerParams) -> None:
        """A request will come that wants this."""
        self._params[rid] = params

    def add(self, request: ScriptedRequest) -> ScriptedRequest:
        rid = request.spec.rid
        super().add(request)
        params = self._params[rid]
        if not params.sampling.is_plain:
            self.sampling_params[rid] = params.sampling
        if params.stop:
            self._stop_texts[rid] = _StopTexts(self._texts, params.stop)
        return request

    def ends(self, rid: str, output: Sequence[int]) -> bool:
        by_token = super().ends(rid, output) or output[-1] in self._params[rid].stop_token_ids
        stop_texts = self._stop_texts.get(rid)
        if by_token or (stop_texts is not None and stop_texts.found(output)):
            self._ended[rid] = int(by_token)
            return True
        return False

    def output_part(self, rid: str, first: int, stop: int) -> list[int]:
        """Output tokens `first` to `stop` of a request that goes on."""
        return self._outputs[rid][first:stop]

    def take_output(self, rid: str, num_tokens: int) -> tuple[list[int], int | None]:
        """The output of a request that has ended, once.

        Returns:
            Its tokens; and how many of its last tokens are the end or stop token, which has no
            text. None: it ended for another reason.
        """
        output = self.final_outputs.pop(rid, [])[:num_tokens]
        return output, self._ended.pop(rid, None)

    def forget(self, rid: str) -> None:
        super().forget(rid)
        self.sampling_params.pop(rid, None)
        self._params.pop(rid, None)
        self._stop_texts.pop(rid, None)
