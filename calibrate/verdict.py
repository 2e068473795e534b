"""What a validation allows to say, given how much the machine's own pace varies."""

from collections.abc import Mapping, Sequence

from calibrate.validate import Case, Validation

_JUDGED: Mapping[str, str] = {
    "mean_ttft_ms": "mean TTFT",
    "mean_tpot_ms": "mean TPOT",
    "output_throughput": "output tokens/s",
}
# A pace that varies by more than this tells little about a profile.
_NOISY_PCT = 10.0
_NO_REPEATS = (
    "Verdict: no scenario was served twice, so nothing shows how much this machine's pace varies."
    " Serve one again to judge the errors."
)


def verdict(validation: Validation) -> list[str]:
    """Sentences that compare the profile's errors with the differences between equal runs."""
    repeated = [case for case in validation.cases if len(case.runs) > 1]
    if not repeated:
        return [_NO_REPEATS]
    lines = [_of_case(case) for case in repeated]
    lines.append(_coverage(repeated))
    if twice := [case.label for case in repeated if len(case.runs) == 2]:
        lines.append(
            f"Verdict on {', '.join(twice)}: two runs tell little of the noise, so the margins are"
            " wide. Three or more give narrow ones."
        )
    most = max(case.real.spread_pct(name) or 0.0 for case in repeated for name in _JUDGED)
    if once := [case.label for case in validation.cases if len(case.runs) == 1]:
        lines.append(
            f"Verdict on {', '.join(once)}: served once, so an error of up to {most:.1f} % may be"
            " noise."
        )
    if most > _NOISY_PCT:
        lines.append(
            f"Verdict on this machine: its pace varies by {most:.1f} % from run to run. The figures"
            " show that the loop works, not how good a profile can be."
        )
    return lines


def _coverage(cases: Sequence[Case]) -> str:
    known = [
        within
        for case in cases
        for within in case.errors["profile"].within.values()
        if within is not None
    ]
    return (
        f"Verdict on all metrics: {sum(known)} of {len(known)} simulated values are within the 95 %"
        " margins of the real means."
    )


def _of_case(case: Case) -> str:
    errors = case.errors["profile"]
    noise, found = [], []
    for name, words in _JUDGED.items():
        spread, error = case.real.spread_pct(name), errors.error_pct[name]
        if spread is not None and error is not None:
            noise.append(f"{words} {spread:.1f} %")
            place = "within" if errors.within[name] else "beyond"
            found.append(f"{words} {error:+.1f} % ({place} the noise)")
    return (
        f"Verdict on {case.label}: {len(case.runs)} equal runs differ by {', '.join(noise)}: that"
        f" is this machine's noise. The simulation is off by {', '.join(found)}."
    )
