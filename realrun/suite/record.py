"""The records of all stages in `suite.json`, which is rewritten whenever a stage ends."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from realrun.suite import UNFINISHED
from realrun.suite.bundle import is_whole
from realrun.suite.process import StageOutcome
from realrun.suite.stages import Stage
from sim.core.errors import InputError
from sim.core.files import atomic_path

StageStatus = Literal["done", "unfinished", "failed", "not begun"]

_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class StageRecord:
    """The record of one stage, over all calls of the suite.

    Attributes:
        stage: the stage's name.
        status: `unfinished` if time ran out and there is more to do.
        seconds: time that all calls have spent on the stage.
        code: exit code of the last call; None before the first.
        file: the file of its results.
        file_bytes: the size of that file.
        printed: the last lines that it printed.
    """

    stage: str
    status: StageStatus = "not begun"
    seconds: float = 0.0
    code: int | None = None
    file: str | None = None
    file_bytes: int | None = None
    printed: tuple[str, ...] = ()


class Records:
    """The records of all stages in a folder, in the order of the stages."""

    def __init__(self, folder: Path, stages: tuple[Stage, ...]) -> None:
        """Read the records of earlier calls.

        Raises:
            InputError: their file cannot be read.
        """
        self._folder = folder
        self._path = folder / "suite.json"
        known = self._read()
        self._records = {
            stage.name: known.get(stage.name, StageRecord(stage.name, file=stage.file))
            for stage in stages
        }

    def is_done(self, stage: Stage) -> bool:
        """Whether the stage is done, and its file exists and is complete."""
        if self._records[stage.name].status != "done":
            return False
        return stage.file is None or is_whole(self._folder / stage.file)

    def note(self, stage: Stage, outcome: StageOutcome) -> StageRecord:
        """Record how a stage's process ended.

        Raises:
            InputError: the file cannot be written.
        """
        path = None if stage.file is None else self._folder / stage.file
        record = replace(
            self._records[stage.name],
            status=_status(outcome),
            seconds=round(self._records[stage.name].seconds + outcome.seconds, 1),
            code=outcome.code,
            file_bytes=path.stat().st_size if path is not None and path.exists() else None,
            printed=tuple(outcome.printed),
        )
        self._records[stage.name] = record
        self._write()
        return record

    def all(self) -> list[StageRecord]:
        return list(self._records.values())

    def _write(self) -> None:
        content = {"schema": 1, "stages": [asdict(record) for record in self.all()]}
        text = json.dumps(content, indent=1, ensure_ascii=False)
        with atomic_path(self._path) as beside:
            beside.write_text(text + "\n", encoding="utf-8")

    def _read(self) -> dict[str, StageRecord]:
        if not self._path.exists():
            return {}
        try:
            lines = json.loads(self._path.read_text(encoding="utf-8"))["stages"]
            return {line["stage"]: StageRecord(**line) for line in lines}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{self._path}: not a record file of the suite ({error})") from None


def _status(outcome: StageOutcome) -> StageStatus:
    if outcome.code == 0:
        return "done"
    if outcome.code in {UNFINISHED, _INTERRUPTED} or outcome.timed_out:
        return "unfinished"
    return "failed"
