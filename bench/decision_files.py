"""Lists the files of `sim` that a decision passes: `python -m bench.decision_files SCENARIO`.

It needs SERVETWIN_PURE=1, because calls of compiled functions are not seen.
A decision passes a file if it calls a function there. Of all decisions of the run, the one that
passes most files is printed, and of all steps the one that does: a decision with the result that is
taken in after it. Further arguments are KEY=VALUE, as of `--set`.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

from sim.commands.running.simulate import simulate_built
from sim.compiled.finder import PURE
from sim.core.files import json_text
from sim.des.servers import RunOptions
from sim.engine.core import EngineCore
from sim.scenario.build import build
from sim.scenario.load import load_scenario

_ROOT = f"{Path(__file__).parents[1]}/"
_SIM = f"{_ROOT}sim/"


class Passed:
    """Notes the files whose functions an engine calls.

    Attributes:
        decision, step: the files of the decision, and of the step, that passes most.
    """

    def __init__(self) -> None:
        self.decision = frozenset[str]()
        self.step = frozenset[str]()
        self._of_step = set[str]()

    def watch(self, run: Callable[[], object]) -> None:
        """Run a simulation in pure Python."""
        begin_step, end_step = EngineCore.begin_step, EngineCore.end_step

        def begin(*given: Any) -> object:
            self._of_step.clear()
            decided = self._profiled(begin_step, given)
            self.decision = max(self.decision, frozenset(self._of_step), key=len)
            return decided

        def end(*given: Any) -> object:
            records = self._profiled(end_step, given)
            self.step = max(self.step, frozenset(self._of_step), key=len)
            return records

        with patch.multiple(EngineCore, begin_step=begin, end_step=end):
            run()

    def _profiled(self, method: Callable[..., object], given: tuple[Any, ...]) -> object:
        sys.setprofile(self._called)
        try:
            return method(*given)
        finally:
            sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(_SIM):
            self._of_step.add(path.removeprefix(_ROOT))


def main() -> None:
    if os.environ.get(PURE, "") in {"", "0"}:
        sys.exit(f"bench: set {PURE}=1: calls of compiled functions are not seen")
    path, *overrides = sys.argv[1:]
    built = build(load_scenario(Path(path), overrides))
    passed = Passed()
    passed.watch(lambda: simulate_built(built, RunOptions()))
    found = {"decision": sorted(passed.decision), "step": sorted(passed.step)}
    sys.stdout.write(json_text(found))


if __name__ == "__main__":
    main()
