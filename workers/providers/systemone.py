"""System One, `POST /v1/systemone`: TypeSafe and every compatible server (PROVIDERS, "System One"). Pure."""

from collections.abc import Mapping

import msgspec

from shared.config import ProviderConfig
from workers.providers.answers import MISSING, REFUSED, UNREADABLE, judged
from workers.providers.base import (
    Answer,
    HttpCall,
    ModelRequest,
    NoAnswer,
    ProviderReply,
    Question,
    Usage,
)
from workers.providers.errors import ProviderMalformedError, error_for_status

PATH = "/v1/systemone"
MAX_USAGE_TOKENS = 100_000_000  # far beyond any request: a larger count is nonsense, not a bill
MAX_MODEL_CHARS = 128


class _Answer(msgspec.Struct, gc=False):
    choice: str = ""
    probabilities: dict[str, float] | None = None
    type: str = "choice"


class _Reply(msgspec.Struct):
    answers: dict[str, _Answer]
    usage: msgspec.Raw = msgspec.Raw(b"null")
    model: str = ""


class _LooseReply(msgspec.Struct):
    answers: dict[str, msgspec.Raw]
    usage: msgspec.Raw = msgspec.Raw(b"null")
    model: msgspec.Raw = msgspec.Raw(b'""')


class _Usage(msgspec.Struct):
    # Floats, as some servers count with them.
    input_tokens: float | None = None
    output_tokens: float | None = None
    cached_input_tokens: float | None = None  # Fireworks


_REPLY = msgspec.json.Decoder(_Reply)
_LOOSE_REPLY = msgspec.json.Decoder(_LooseReply)
_ANSWER = msgspec.json.Decoder(_Answer)
_USAGE = msgspec.json.Decoder(_Usage)
_TEXT = msgspec.json.Decoder(str)
_HEADERS = {"content-type": "application/json"}


def build_request(provider: ProviderConfig, request: ModelRequest) -> HttpCall:
    """Splice the ready texts into one body, questions and options in the order given."""
    as_text = provider.state == "string"
    parts = [
        '{"model":',
        _quoted(provider.model),
        ',"state":',
        _text_of(request.state) if as_text else request.state,
        ',"questions":{',
    ]
    comma = ""
    for question in request.questions:
        instructions = question.instructions
        if as_text:
            instructions = _text_of(instructions)
        parts += (
            comma,
            '"',
            question.id,
            '":{"type":"choice","instructions":',
            instructions,
            ',"criteria":',
            question.criteria,
            "}",
        )
        comma = ","
    parts.append("}}")
    return HttpCall(provider.path or PATH, "".join(parts).encode(), _HEADERS)


def parse_response(
    request: ModelRequest, status: int, headers: Mapping[str, str], body: bytes
) -> ProviderReply:
    """Answers in the order of the questions; what is missing or impossible is that question's alone."""
    if status != 200:
        raise error_for_status(status, headers, body)
    try:
        reply = _REPLY.decode(body)
    except (msgspec.ValidationError, RecursionError):
        return _parsed_one_by_one(request, body)
    except msgspec.DecodeError as exc:
        raise ProviderMalformedError("the reply is not JSON", billed=True) from exc
    answers = [_judged(question, reply.answers.get(question.id)) for question in request.questions]
    return ProviderReply(answers, _usage(reply.usage), reply.model[:MAX_MODEL_CHARS])


def _parsed_one_by_one(request: ModelRequest, body: bytes) -> ProviderReply:
    """For a reply in which something is of the wrong type: only the answers it concerns are lost."""
    try:
        reply = _LOOSE_REPLY.decode(body)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise ProviderMalformedError("the reply holds no map of answers", billed=True) from exc
    answers: list[Answer | NoAnswer] = []
    for question in request.questions:
        raw = reply.answers.get(question.id)
        try:
            answer = None if raw is None else _ANSWER.decode(raw)
        except (msgspec.MsgspecError, RecursionError):
            answers.append(UNREADABLE)
        else:
            answers.append(_judged(question, answer))
    try:
        model = _TEXT.decode(reply.model)
    except msgspec.MsgspecError:
        model = ""
    return ProviderReply(answers, _usage(reply.usage), model[:MAX_MODEL_CHARS])


def _judged(question: Question, answer: _Answer | None) -> Answer | NoAnswer:
    if answer is None:
        return MISSING
    if answer.type == "choice":
        return judged(question, answer.choice, answer.probabilities)
    # The format has no refusal; a gateway in front of another provider may pass one through.
    return REFUSED if answer.type == "refusal" else UNREADABLE


def _usage(raw: msgspec.Raw) -> Usage:
    """What the provider counted. Counts that cannot be are as good as absent: zero, so that we estimate."""
    try:
        usage = _USAGE.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return Usage()
    read = _tokens(usage.input_tokens)
    return Usage(read, min(_tokens(usage.cached_input_tokens), read), _tokens(usage.output_tokens))


def _tokens(count: float | None) -> int:
    return int(count) if count is not None and 0 <= count <= MAX_USAGE_TOKENS else 0


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _text_of(json_text: str) -> str:
    """The JSON text as a JSON string, for servers that take no objects; a string stays as it is."""
    return json_text if json_text.startswith('"') else _quoted(json_text)
