"""The command that launches a server with some settings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """How a server gets the settings of its scheduler.

    Attributes:
        server: whose flags these are, with the version.
        program: the command before its flags; the model is `$MODEL`.
        variables: environment variables and their values, `NAME=value`.
        flags: of the launch command, each with its value.
        apart: settings that the server has no flag for, `key=value`.
    """

    server: str
    program: str
    variables: tuple[str, ...]
    flags: tuple[str, ...]
    apart: tuple[str, ...]

    @property
    def command(self) -> str:
        """One line for a shell."""
        return " ".join((*self.variables, self.program, *self.flags))
