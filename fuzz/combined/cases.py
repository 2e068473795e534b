"""The cases of combined scenarios."""

from fuzz.cases import FuzzCase
from fuzz.combined.draw import combined_scenario


def combined_cases() -> list[FuzzCase]:
    return [
        FuzzCase(
            "combined",
            "combined.yaml",
            combined_scenario,
            ("combined combined.yaml",),
            weight=40,
            group="combined scenarios",
            bytes_share=0,
            twice=True,
        )
    ]
