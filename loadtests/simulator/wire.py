"""What the two wire formats of the simulator have in common. Pure."""

from typing import Protocol

import msgspec

MAX_OPTIONS = 255
MODEL = "simulator-1"
UNKNOWN_MODEL = "no-such-model"  # any other name is served; one that holds this is refused, to order


class WireError(Exception):
    """A request that is refused: the status, and the encoded body in the format's own shape."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.body = body


class Answered(msgspec.Struct):
    """A request that was understood: encoded answers in the order asked, and the tokens that it cost."""

    keys: list[bytes]  # what stands in front of each answer
    answers: list[bytes]
    input_tokens: int


class Wire(Protocol):
    """One wire format."""

    def answer(self, body: bytes) -> Answered:
        """Answer every question of a request. Raises WireError."""
        ...

    def encode(self, answered: Answered, missing: frozenset[int]) -> bytes:
        """The reply, without (or with refusals in place of) the answers at the places `missing`."""
        ...

    def failure(self, status: int, message: str) -> bytes:
        """The body of an error reply."""
        ...
