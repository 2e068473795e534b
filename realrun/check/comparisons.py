"""The comparisons: each computes the same logits in two ways, with pages in random order."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from realrun.check.check_case import NUM_DECODES, CheckCase
from realrun.check.comparison import LogitComparison, max_error
from realrun.check.paged_requests import PagedRequests
from realrun.check.plain import last_logits
from realrun.runner.model_runner import ModelRunner

Logits = Mapping[str, Tensor]


def paged_against_plain(case: CheckCase, runner: ModelRunner) -> LogitComparison:
    """All prompts in one paged batch, against plain transformers with one prompt at a time."""
    requests = PagedRequests(runner)
    for rid, tokens in case.prompts.items():
        requests.add(rid, tokens)
    logits = requests.finish(list(case.prompts))
    return _compare(case, "paged = plain transformers", logits, case.plain)


def chunked_against_whole(case: CheckCase, runner: ModelRunner) -> LogitComparison:
    """Prompts in three chunks, which mostly end inside a page, against one step for each prompt."""
    requests = PagedRequests(runner)
    logits: dict[str, Tensor] = {}
    for rid, tokens in case.prompts.items():
        requests.add(rid, tokens)
        for _ in range(2):
            if (count := requests.num_left(rid) // 3) > 0:
                requests.step({rid: count}, unsampled={rid})
        logits |= requests.finish([rid])
    return _compare(case, "chunked = whole prompt", logits, _alone(case, runner))


def shared_against_recomputed(case: CheckCase, runner: ModelRunner) -> LogitComparison:
    """Prompts that read the pages of a shared prefix, against computing all their tokens."""
    requests = PagedRequests(runner)
    requests.add("donor", case.prompts["long"])
    requests.finish(["donor"], unsampled={"donor"})
    prompts = {
        f"fork{cut}": (case.prompts["long"][:cut] + case.prompts["over"])[
            : case.model.max_positions
        ]
        for cut in _cuts(len(case.prompts["long"]), requests.page_size)
    }
    prompts["same"] = case.prompts["long"]
    num_shared = sum(requests.add_sharing(rid, tokens, "donor") for rid, tokens in prompts.items())
    logits = requests.finish(list(prompts))
    note = f"{num_shared} shared tokens"
    return _compare(case, "shared prefix = recomputed", logits, _alone(case, runner, prompts), note)


def mixed_against_separate(case: CheckCase, runner: ModelRunner) -> LogitComparison:
    """A prompt, a chunk and decode rows in one batch, against one step for each."""
    return _compare(
        case,
        "mixed batch = separate steps",
        _mixed(case, runner, together=True),
        _mixed(case, runner, together=False),
    )


def greedy_against_plain(case: CheckCase, runner: ModelRunner) -> LogitComparison:
    """Greedy decoding: the plain logit of each generated token, against the largest plain logit.

    If the two best tokens are closer than the rounding error, either may be generated. Two logits
    are involved, so twice the tolerance is allowed.
    """
    requests = PagedRequests(runner)
    tokens = {rid: list(prompt) for rid, prompt in case.prompts.items()}
    for rid, prompt in case.prompts.items():
        requests.add(rid, prompt)
    for _ in range(NUM_DECODES):
        for rid, logits in requests.finish(list(tokens)).items():
            tokens[rid].append(int(logits.argmax()))
            requests.extend(rid, tokens[rid][-1])
    shortfall, num_others = 0.0, 0
    for sequence in tokens.values():
        logits = last_logits(case.model.model, sequence[:-1], NUM_DECODES).double()
        chosen = torch.tensor(sequence[-NUM_DECODES:], device=logits.device)
        missing = logits.amax(dim=-1) - logits.gather(1, chosen[:, None])[:, 0]
        shortfall = max(shortfall, float(missing.max()))
        num_others += int((missing > 0).sum())
    note = f"{num_others} of {NUM_DECODES * len(tokens)} tokens are not plain's best"
    return LogitComparison("greedy tokens = plain's best", shortfall, 2 * case.tolerance, note)


def runners_agree(
    case: CheckCase, name: str, first: ModelRunner, second: ModelRunner
) -> LogitComparison:
    """Prefill, decode and mixed batches with two runners, which use the same pages in turn."""
    return _compare(case, name, _all_kinds(case, first), _all_kinds(case, second))


def _all_kinds(case: CheckCase, runner: ModelRunner) -> dict[str, Tensor]:
    """Logits of a prefill batch, of decode batches of decreasing size, and of a mixed batch."""
    requests = PagedRequests(runner)
    for rid, tokens in case.prompts.items():
        requests.add(rid, tokens)
    logits = _with_step("prefill", requests.finish(list(case.prompts)))
    rids = list(case.prompts)
    for step, num_rows in enumerate((len(rids), 3, 2, 1)):
        for rid in rids[-num_rows:]:
            requests.extend(rid, step)
        logits |= _with_step(f"decode {num_rows}", requests.finish(rids[-num_rows:]))
    return logits | _with_step("mixed", _mixed(case, runner, together=True))


def _alone(
    case: CheckCase, runner: ModelRunner, prompts: Mapping[str, Sequence[int]] | None = None
) -> dict[str, Tensor]:
    """The logits of each prompt in a separate step, on separate pages."""
    logits: dict[str, Tensor] = {}
    for rid, tokens in (prompts or case.prompts).items():
        requests = PagedRequests(runner)
        requests.add(rid, tokens)
        logits |= requests.finish([rid])
    return logits


def _mixed(case: CheckCase, runner: ModelRunner, *, together: bool) -> dict[str, Tensor]:
    """Two requests decode while one is prefilled and one gets its first chunk."""
    requests = PagedRequests(runner)
    for rid, tokens in case.prompts.items():
        requests.add(rid, tokens)
    requests.finish(["page", "under"], unsampled={"page", "under"})
    for rid in ("page", "under"):
        requests.extend(rid, 1)
    counts = {
        "long": (requests.num_left("long") + 1) // 2,
        "over": requests.num_left("over"),
        "page": 1,
        "under": 1,
    }
    steps = [counts] if together else [{rid: count} for rid, count in counts.items()]
    logits: dict[str, Tensor] = {}
    for step in steps:
        logits |= requests.step(step, unsampled={"long"})
    if requests.num_left("long"):
        logits |= requests.finish(["long"])
    return logits


def _cuts(length: int, page_size: int) -> list[int]:
    """Lengths of a shared prefix: one page, two pages and a token, and half of the prompt."""
    return sorted({min(cut, length) for cut in (page_size, 2 * page_size + 1, length // 2)})


def _with_step(step: str, logits: Logits) -> dict[str, Tensor]:
    return {f"{step}: {rid}": row for rid, row in logits.items()}


def _compare(
    case: CheckCase, name: str, first: Logits, second: Logits, note: str = ""
) -> LogitComparison:
    errors = [max_error(row, second[key]) for key, row in first.items()]
    # Not max(errors), which may hide a NaN.
    error = float(torch.tensor(errors).max())
    return LogitComparison(name, error, case.tolerance, note or f"{len(errors)} rows of logits")


Check = Callable[[CheckCase, ModelRunner], LogitComparison]

# The comparisons that every device and attention backend must pass.
EVERYWHERE: tuple[Check, ...] = (
    paged_against_plain,
    chunked_against_whole,
    shared_against_recomputed,
    mixed_against_separate,
    greedy_against_plain,
)
