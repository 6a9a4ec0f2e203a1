"""Muster's errors: one tree that says whose fault it was.

MusterError
├── InputError            the game's message: answered 4xx, names the path of the fault
├── ConfigError           the operator's file or environment: start-up fails and names the key
├── StoreError            our own storage
│   ├── StoreUnavailableError   no answer in time: the command may or may not have run
│   └── StoreReplyError         the server refused the command
└── ProviderError         the provider's reply or its absence (see `workers.providers`)
"""


class MusterError(Exception):
    """Root of every error that this project raises on purpose."""


class InputError(MusterError):
    """A message from a game that breaks the protocol.

    `path` is the place of the fault (`entities[0].observation.hp`, empty for the whole body), `problem` a
    short sentence. Neither holds more of the sender's text than the names it is built from.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


class ConfigError(MusterError):
    """A setting or configuration file that cannot be used; the text names the key."""


class StoreError(MusterError):
    """Redis or Postgres did not do what was asked."""


class StoreUnavailableError(StoreError):
    """No answer: unreachable, lost or too slow. What was sent may have been executed."""


class StoreReplyError(StoreError):
    """The server answered with an error; `str()` is its text, which starts with the error's code."""
