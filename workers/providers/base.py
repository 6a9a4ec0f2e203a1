"""What every provider kind takes and gives. Pure: values only.

Texts in a request are ready JSON, encoded once by whoever laid out the prompt; a kind splices them into its
body and never encodes them again (DESIGN, "The decide path": 38–44 µs against 69).
"""

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from shared.config import ProviderConfig
from shared.scheduling.tokens import estimated_tokens

NoAnswerCode = Literal["invalid_choice", "refused", "unavailable"]


class Question(msgspec.Struct, frozen=True, gc=False):
    """One typed choice.

    `id` is our own (`q1`…: letters and digits only; never an entity's id, as providers see it),
    `instructions` the JSON text of an object or a string, `criteria` the JSON text of the map from option to
    description, `options` its keys in the manifest's order.
    """

    id: str
    instructions: str
    criteria: str
    options: tuple[str, ...]


class ModelRequest(msgspec.Struct, frozen=True):
    """One provider call: the JSON text of the shared state, and the questions asked against it."""

    state: str
    questions: list[Question]

    @property
    def estimated_tokens(self) -> int:
        """Input tokens at 4 characters each, over what the model sees: state, instructions, criteria."""
        chars = len(self.state)
        for question in self.questions:
            chars += len(question.instructions) + len(question.criteria)
        return estimated_tokens(chars)


class HttpCall(msgspec.Struct, frozen=True):
    """A POST to `path` below the provider's address. The transport adds the key."""

    path: str
    body: bytes
    headers: dict[str, str]


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A choice among the options sent. `probabilities` are over all of them, in their order, and sum to 1.

    Both they and `confidence` are None when the provider gives no probabilities.
    """

    choice: str
    probabilities: tuple[float, ...] | None
    confidence: float | None


class NoAnswer(msgspec.Struct, frozen=True, gc=False):
    """Why one question has no answer; `code` is the entity's fallback code."""

    code: NoAnswerCode
    why: str


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens as the provider counted them; `cached_tokens` are those of `input_tokens` it had seen before."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class ProviderReply(msgspec.Struct, frozen=True):
    """A reply that could be read: one entry per question asked, in the order asked."""

    answers: list[Answer | NoAnswer]
    usage: Usage
    model: str


class ProviderModule(Protocol):
    """A provider kind. Neither function does I/O."""

    def build_request(self, provider: ProviderConfig, request: ModelRequest) -> HttpCall:
        """The HTTP call that asks `request`."""
        ...

    def parse_response(
        self, request: ModelRequest, status: int, headers: Mapping[str, str], body: bytes
    ) -> ProviderReply:
        """Read what came back for `request`; `headers` has lower-case names. Raises ProviderError."""
        ...
