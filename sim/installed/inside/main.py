"""Answers the simulator, one line of JSON for each of its lines; both sides of the protocol.

A question is `[server, method, arguments]`, and calls a method of this server:

    version   -                       answers the engine's `version`; of no server
    open      settings                make the server, whose number is new
    close     -                       forget the server
    add       time, requests          requests that have arrived, in order
    late      time                    answers `late`: requests that have waited or run for too long
    abort     time, rid               the request is to end
    decide    time                    decide the next step
    result    time, tokens, drafts    the oldest step has ended; by rid: the tokens that its rows
                                      have sampled, and how many drafts follow them

Times are in ns. A decision answers `rows` of `[rid, tokens computed before, tokens of this step,
whether it samples a token, drafts among the tokens]`, which requests were `retracted`, and
`preempted`: pairs of the request that needed KV and the victim; and, if nothing is launched,
whether the next decision may differ (`again`). A result answers which requests were `given` tokens,
and which have `ended`, in order. These, `add` and `abort` also answer the server's state: tokens
that are free and evictable, how many requests are `waiting` and `running`, whether the batch is
`full`, the `ratio` of new tokens, the request that is `chunked`, and which requests have been
`aborted` since the last answer.

Whatever is raised is answered as `error`, in one line.
"""

import json
import os
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

Answer = dict[str, Any]


class ServersInside:
    """The simulated servers of one engine, by number.

    Of an engine whose settings are global to a process, each is in a copy of this process.
    """

    def __init__(self, engine: str, *, copies: bool = True) -> None:
        """`copies`: a server may have a process of its own."""
        self._engine = engine
        self._copies = copies
        self._servers: dict[int, Any] = {}
        self._apart: dict[int, Apart] = {}

    def answer(self, line: str) -> str:
        """The answer to a question."""
        number, method, arguments = json.loads(line)
        try:
            if method == "open" and self._copies and self._module.NEEDS_PROCESS:
                self._apart[number] = Apart(self._engine, self._apart.values())
            if number in self._apart:
                return self._ask_apart(number, method, line)
            answer = self._answer(number, method, arguments)
        except (Exception, SystemExit) as error:
            answer = {"error": in_words(error)}
        return json.dumps(answer, separators=(",", ":")) + "\n"

    @property
    def _module(self) -> Any:
        return import_module(f"sim.installed.inside.{self._engine}.server")

    def _answer(self, number: int, method: str, arguments: list[Any]) -> Answer:
        if method == "version":
            return {"version": self._module.VERSION}
        if method == "open":
            self._servers[number] = self._module.Server(*arguments)
            return {}
        if method == "close":
            del self._servers[number]
            return {}
        answer: Answer = getattr(self._servers[number], method)(*arguments)
        return answer

    def _ask_apart(self, number: int, method: str, line: str) -> str:
        if method == "close":
            self._apart.pop(number).end()
            return "{}\n"
        return self._apart[number].ask(line)


class Apart:
    """A server in a copy of this process."""

    def __init__(self, engine: str, others: "Iterable[Apart]") -> None:
        """Start the copy, which lets go of the `others`: each ends when nobody asks it any more."""
        (theirs, ours), (answers, answering) = os.pipe(), os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            for each in others:
                each.let_go()
            os.close(ours)
            os.close(answers)
            with os.fdopen(theirs) as questions, os.fdopen(answering, "w") as said:
                serve(ServersInside(engine, copies=False), questions, said)
            os._exit(0)
        os.close(theirs)
        os.close(answering)
        self._asks, self._answers = os.fdopen(ours, "w"), os.fdopen(answers)

    def ask(self, line: str) -> str:
        self._asks.write(line)
        self._asks.flush()
        answer = self._answers.readline()
        if not answer:
            raise ChildProcessError("the server's process has ended")
        return answer

    def let_go(self) -> None:
        self._asks.close()
        self._answers.close()

    def end(self) -> None:
        self.let_go()
        os.waitpid(self._pid, 0)


def in_words(error: BaseException) -> str:
    """For example `ValueError: reason (scheduler.py:12)`, with the line that raised."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    place = "" if at is None else f" ({Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno})"
    return " ".join(f"{type(error).__name__}: {error}{place}".split())


def serve(servers: ServersInside, questions: TextIO, answers: TextIO) -> None:
    """Answer until there are no more questions."""
    for line in questions:
        answers.write(servers.answer(line))
        answers.flush()


def main() -> None:
    # Whatever the engine prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(ServersInside(sys.argv[2]), sys.stdin, answers)
