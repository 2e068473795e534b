"""The command that launches a real server with given settings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """A launch command, and the settings that it cannot express.

    Attributes:
        server: name and version of the server that the flags belong to.
        program: the command before its flags; the model is `$MODEL`.
        variables: environment variables, `NAME=value`.
        flags: flags of the command, each with its value.
        apart: settings for which the server has no flag, each as `key=value`.
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
