"""OpenAI Decisions as the simulator speaks it. Pure."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from loadtests.simulator.chance import AnswerBook, Distribution, confidence
from loadtests.simulator.texts import seen_chars
from loadtests.simulator.wire import MAX_OPTIONS, MODEL, UNKNOWN_MODEL, Answered, WireError
from shared.scheduling.tokens import estimated_tokens

MAX_QUESTIONS = 400
_MAX_BOOKS = 4_096

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found",
    429: "rate_limit_exceeded",
}


class _Option(msgspec.Struct, forbid_unknown_fields=True):
    value: Annotated[str, Meta(min_length=1)]
    description: str | None = None


class _Question(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["choice"]
    instructions: str
    choices: msgspec.Raw
    name: str | None = None


class _Request(msgspec.Struct):
    model: str
    input: str | list[dict[str, object]]
    questions: Annotated[list[_Question], Meta(min_length=1, max_length=MAX_QUESTIONS)]


_REQUEST = msgspec.json.Decoder(_Request)
_OPTIONS = msgspec.json.Decoder(Annotated[list[_Option], Meta(min_length=2, max_length=MAX_OPTIONS)])


class Decisions:
    """The wire format, with the answers to recent sets of choices kept encoded."""

    def __init__(self) -> None:
        self._books: dict[bytes, AnswerBook] = {}

    def answer(self, body: bytes) -> Answered:
        """Answer every question of a request; raises WireError with OpenAI's error shape."""
        try:
            body.decode()
            request = _REQUEST.decode(body)
        except msgspec.ValidationError as exc:
            raise self._refused(str(exc)) from exc
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise self._refused("We could not parse the JSON body of your request.") from exc
        if UNKNOWN_MODEL in request.model:
            raise WireError(404, self.failure(404, "The model does not exist"))
        chars = _input_chars(request.input)
        keys: list[bytes] = []
        answers: list[bytes] = []
        for question in request.questions:
            choices = bytes(question.choices)
            book = self._books.get(choices) or self._book(choices)
            answers.append(book.answer(question.instructions.encode()))
            keys.append(msgspec.json.encode(question.name))
            chars += book.options_chars + len(question.instructions)
        return Answered(keys, answers, estimated_tokens(chars))

    def encode(self, answered: Answered, missing: frozenset[int]) -> bytes:
        """The reply; a place in `missing` holds a refusal, this format's way of not answering."""
        answers = [
            b'{"type":"refusal","name":%b}' % name
            if place in missing
            else b'{"type":"choice","name":%b,%b' % (name, answer)
            for place, (name, answer) in enumerate(zip(answered.keys, answered.answers, strict=True))
        ]
        tokens = answered.input_tokens
        return (
            b'{"object":"decision","model":"%b","answers":[%b],"usage":{"input_tokens":%d,'
            b'"input_tokens_details":{"cached_tokens":0},"output_tokens":0,"total_tokens":%d}}'
        ) % (MODEL.encode(), b",".join(answers), tokens, tokens)

    def failure(self, status: int, message: str) -> bytes:
        """`{"error": {message, type, code}}`."""
        kind = _ERROR_TYPES.get(status, "server_error")
        return msgspec.json.encode({"error": {"message": message, "type": kind, "code": None}})

    def _refused(self, message: str) -> WireError:
        return WireError(400, self.failure(400, message))

    def _book(self, choices: bytes) -> AnswerBook:
        try:
            options = [option.value for option in _OPTIONS.decode(choices)]
        except (msgspec.MsgspecError, RecursionError) as exc:
            raise self._refused(f"choices: {exc}") from exc
        if len(set(options)) < len(options):
            raise self._refused("choices: values must be unique")
        if len(self._books) >= _MAX_BOOKS:
            self._books.clear()

        def render(probabilities: Distribution) -> bytes:
            rest = {
                "choice": options[probabilities.index(max(probabilities))],
                "probabilities": [
                    {"value": value, "probability": share}
                    for value, share in zip(options, probabilities, strict=True)
                ],
                "confidence": confidence(probabilities),
            }
            return msgspec.json.encode(rest)[1:]  # the type and the question's name come in front

        book = AnswerBook(choices, len(options), seen_chars(choices), render)
        self._books[choices] = book
        return book


def _input_chars(given: str | list[dict[str, object]]) -> int:
    return len(given) if isinstance(given, str) else seen_chars(msgspec.json.encode(given))
