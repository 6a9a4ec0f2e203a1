"""System One as the simulator speaks it: strict about requests, exact about replies. Pure."""

import zlib
from collections.abc import Callable

import msgspec

from loadtests.simulator.chance import AnswerBook, Distribution, confidence, distribution, variant_of
from loadtests.simulator.texts import seen_chars
from loadtests.simulator.wire import MAX_OPTIONS, MODEL, UNKNOWN_MODEL, Answered, WireError
from shared.scheduling.tokens import estimated_tokens

MAX_REQUEST_TOKENS = 64_000  # TypeSafe's
MAX_QUESTIONS = 800
MAX_LEVELS = 10
_MAX_BOOKS = 4_096  # sets of options whose answers are kept

_NULL = msgspec.Raw(b"null")
_ERROR_TYPES = {
    400: "api_usage_error",
    401: "authentication_error",
    403: "authentication_error",
    404: "not_found",
}


class _Choice(msgspec.Struct, tag="choice", tag_field="type", forbid_unknown_fields=True):
    criteria: msgspec.Raw
    instructions: msgspec.Raw = _NULL


class _Noul(msgspec.Struct, tag="noul", tag_field="type", forbid_unknown_fields=True):
    criteria: msgspec.Raw = _NULL
    instructions: msgspec.Raw = _NULL


class _Score(msgspec.Struct, tag="score", tag_field="type", forbid_unknown_fields=True):
    criteria: msgspec.Raw
    instructions: msgspec.Raw = _NULL


class _Request(msgspec.Struct):
    model: str
    state: msgspec.Raw
    questions: dict[str, _Choice | _Noul | _Score]


class _NoulCriteria(msgspec.Struct, forbid_unknown_fields=True):
    true: str | dict[str, object] | list[object] | None = None
    false: str | dict[str, object] | list[object] | None = None


_REQUEST = msgspec.json.Decoder(_Request)
_OPTIONS = msgspec.json.Decoder(dict[str, str | dict[str, object] | list[object] | None])
_NOUL_CRITERIA = msgspec.json.Decoder(_NoulCriteria | None)
_LEVELS = msgspec.json.Decoder(list[str | dict[str, object] | list[object]])


class SystemOne:
    """The wire format, with the answers to recent sets of options kept encoded."""

    def __init__(self) -> None:
        self._books: dict[bytes, AnswerBook] = {}

    def answer(self, body: bytes) -> Answered:
        """Answer every question of a request; raises WireError with TypeSafe's error shapes."""
        request = _decoded(body)
        if UNKNOWN_MODEL in request.model:
            raise WireError(400, self.failure(400, "Unknown model"))
        if not request.questions:
            raise invalid(["questions"], "Dictionary should have at least 1 item", "too_short")
        if len(request.questions) > MAX_QUESTIONS:
            raise invalid(["questions"], f"Dictionary should have at most {MAX_QUESTIONS} items", "too_long")
        state = bytes(request.state)
        if state[:1] not in b'"{[':
            raise invalid(["state"], "Input should be a string, object or array", "union_type")
        chars = seen_chars(state)
        keys: list[bytes] = []
        answers: list[bytes] = []
        for name, question in request.questions.items():
            instructions = bytes(question.instructions)
            if instructions[:1] not in b'"{[n':
                raise invalid(["questions", name, "instructions"], "Input should be text", "union_type")
            criteria = bytes(question.criteria)
            if isinstance(question, _Choice):
                book = self._books.get(criteria) or self._book(name, criteria)
                answers.append(book.answer(instructions))
                chars += book.options_chars
            else:
                answers.append(_other_answer(name, question, instructions, criteria))
                chars += seen_chars(criteria)
            chars += seen_chars(instructions)
            keys.append(msgspec.json.encode(name))
        tokens = estimated_tokens(chars)
        if tokens > MAX_REQUEST_TOKENS:
            message = f"{tokens} tokens, at most {MAX_REQUEST_TOKENS}"
            raise WireError(400, _detail("max_tokens_exceeded", message))
        return Answered(keys, answers, tokens)

    def encode(self, answered: Answered, missing: frozenset[int]) -> bytes:
        """The reply; answers at the places `missing` are left out."""
        pairs = [
            key + b":" + answer
            for place, (key, answer) in enumerate(zip(answered.keys, answered.answers, strict=True))
            if place not in missing
        ]
        return b'{"model":"%b","answers":{%b},"usage":{"input_tokens":%d,"output_tokens":0}}' % (
            MODEL.encode(),
            b",".join(pairs),
            answered.input_tokens,
        )

    def failure(self, status: int, message: str) -> bytes:
        """`detail` is a plain string when the provider is full, an object otherwise."""
        if status in {429, 529}:
            return msgspec.json.encode({"detail": message})
        return _detail(_ERROR_TYPES.get(status, "internal_error"), message)

    def _book(self, name: str, criteria: bytes) -> AnswerBook:
        place = ["questions", name, "choice", "criteria"]
        try:
            options = _OPTIONS.decode(criteria)
        except msgspec.MsgspecError as exc:
            raise invalid(place, str(exc), "dict_type") from exc
        if not 2 <= len(options) <= MAX_OPTIONS:
            raise invalid(place, f"Dictionary should have 2 to {MAX_OPTIONS} items", "value_error")
        if len(self._books) >= _MAX_BOOKS:
            self._books.clear()
        book = AnswerBook(criteria, len(options), seen_chars(criteria), _choice_renderer(list(options)))
        self._books[criteria] = book
        return book


def _choice_renderer(options: list[str]) -> Callable[[Distribution], bytes]:
    def render(probabilities: Distribution) -> bytes:
        return msgspec.json.encode(
            {
                "type": "choice",
                "choice": options[probabilities.index(max(probabilities))],
                "probabilities": dict(zip(options, probabilities, strict=True)),
                "confidence": confidence(probabilities),
            }
        )

    return render


def _decoded(body: bytes) -> _Request:
    try:
        body.decode()  # raw parts are not decoded again, so that they must be text is settled here
        return _REQUEST.decode(body)
    except msgspec.ValidationError as exc:
        problem, _, place = str(exc).partition(" - at `$")
        where = [part for part in place.rstrip("`").replace("[...]", ".*").split(".") if part]
        raise invalid(where, problem, "missing" if "missing" in problem else "value_error") from exc
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise invalid([], "JSON decode error", "json_invalid") from exc


def _other_answer(name: str, question: _Noul | _Score, instructions: bytes, criteria: bytes) -> bytes:
    kind = "noul" if isinstance(question, _Noul) else "score"
    seed = f"{kind}:{variant_of(instructions, zlib.crc32(criteria))}"
    place = ["questions", name, kind, "criteria"]
    try:
        if isinstance(question, _Noul):
            _NOUL_CRITERIA.decode(criteria)
            return msgspec.json.encode({"type": "noul", "noul": distribution(seed, 2)[0]})
        levels = _LEVELS.decode(criteria)
    except msgspec.MsgspecError as exc:
        raise invalid(place, str(exc), "list_type" if kind == "score" else "model_type") from exc
    if not 2 <= len(levels) <= MAX_LEVELS:
        raise invalid(place, f"List should have 2 to {MAX_LEVELS} items", "value_error")
    probabilities = distribution(seed, len(levels))
    names = [str(level) for level in range(len(levels))]
    return msgspec.json.encode(
        {
            "type": "score",
            "score": sum(level * share for level, share in enumerate(probabilities)),
            "legend": dict(zip(names, levels, strict=True)),
            "probabilities": dict(zip(names, probabilities, strict=True)),
            "confidence": confidence(probabilities),
        }
    )


def invalid(place: list[str], message: str, kind: str) -> WireError:
    """422 with TypeSafe's list of `{loc, msg, type}`."""
    return WireError(
        422, msgspec.json.encode({"detail": [{"loc": ["body", *place], "msg": message, "type": kind}]})
    )


def _detail(kind: str, message: str) -> bytes:
    return msgspec.json.encode({"detail": {"error_type": kind, "message": message}})
