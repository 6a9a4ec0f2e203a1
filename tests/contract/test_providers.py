"""One contract for every registered provider kind, over replies recorded in `payloads/<kind>/`."""

import itertools
import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.config import ProviderConfig, ProviderKind
from workers.providers.base import Answer, ModelRequest, NoAnswer, ProviderReply, Question
from workers.providers.errors import ProviderError, ProviderMalformedError
from workers.providers.registry import KINDS

PAYLOADS = Path(__file__).parent / "payloads"

# What every kind must have a recording of, whatever its format looks like.
REQUIRED = {
    "success",
    "missing_answer",
    "refused",
    "rounded_up",
    "rounded_down",
    "sum_over",
    "sum_under",
    "wrong_option",
    "not_the_likeliest",
    "no_probabilities",
    "usage_absent",
    "status_401",
    "status_429",
    "status_429_retry_after",
    "status_503",
    "status_529",
    "status_500",
    "not_json",
    "truncated",
    "wrong_shape",
}

REQUEST = ModelRequest(
    state='{"world":"A cave.","hp":0.5}',
    questions=[
        Question(
            "q1",
            '{"type":"goblin","hp_fraction":0.33}',
            '{"attack":"Hit the player","flee":"Run away"}',
            ("attack", "flee"),
        ),
        Question(
            "q2",
            '"A slime, \\"full\\" of ünïcode"',
            '{"wait":"Stay","patrol":"Walk the path","heal":"Drink"}',
            ("wait", "patrol", "heal"),
        ),
        Question("q3", '{"type":"bat"}', '{"sleep":"Hang on","fly":"Leave"}', ("sleep", "fly")),
    ],
)


def provider(kind: ProviderKind, **more: Any) -> ProviderConfig:
    return ProviderConfig(kind=kind, base_url="http://127.0.0.1:9", model="jev-1.13.0", **more)


def recorded(kind: str) -> list[str]:
    return sorted(path.stem for path in (PAYLOADS / kind).glob("*.json") if path.stem != "request")


CASES = [(kind, name) for kind in KINDS for name in recorded(kind)]


def load(kind: str, name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((PAYLOADS / kind / f"{name}.json").read_text(encoding="utf-8"))
    return value


def body_of(reply: dict[str, Any]) -> bytes:
    return reply["text"].encode() if "text" in reply else json.dumps(reply["body"]).encode()


def parsed(kind: ProviderKind, reply: dict[str, Any]) -> ProviderReply:
    return KINDS[kind].parse_response(REQUEST, reply["status"], reply["headers"], body_of(reply))


def shown(answer: Answer | NoAnswer) -> dict[str, Any]:
    if isinstance(answer, NoAnswer):
        return {"no_answer": answer.code}
    shares = None if answer.probabilities is None else pytest.approx(answer.probabilities, abs=1e-12)
    confidence = None if answer.confidence is None else pytest.approx(answer.confidence, abs=1e-12)
    return {"choice": answer.choice, "probabilities": shares, "confidence": confidence}


def test_the_registry_knows_exactly_the_kinds_that_configuration_names() -> None:
    assert set(KINDS) == set(get_args(ProviderKind))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_the_required_recordings(kind: ProviderKind) -> None:
    assert set(recorded(kind)) >= REQUIRED


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_recorded_reply_becomes_what_was_written_beside_it(kind: ProviderKind, name: str) -> None:
    case = load(kind, name)
    expect = case["expect"]
    if "error" in expect:
        with pytest.raises(ProviderError) as caught:
            parsed(kind, case["reply"])
        error = caught.value
        assert (error.kind, error.code) == (expect["error"], "unavailable")
        assert (error.billed, error.retry_after_ms) == (expect["billed"], expect["retry_after_ms"])
        return
    reply = parsed(kind, case["reply"])
    assert [shown(answer) for answer in reply.answers] == expect["answers"]
    usage = reply.usage
    assert [usage.input_tokens, usage.cached_tokens, usage.output_tokens] == expect["usage"]
    assert reply.model == expect["model"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_is_sent_as_recorded_questions_and_options_in_order(kind: ProviderKind) -> None:
    wanted = load(kind, "request")
    call = KINDS[kind].build_request(provider(kind), REQUEST)
    assert call.path == wanted["path"]
    assert call.headers["content-type"] == "application/json"
    assert call.body.decode() == json.dumps(wanted["body"], separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("kind", KINDS)
def test_the_path_can_be_configured(kind: ProviderKind) -> None:
    call = KINDS[kind].build_request(provider(kind, path="/inference/v1/systemone"), REQUEST)
    assert call.path == "/inference/v1/systemone"


@pytest.mark.parametrize("kind", KINDS)
def test_objects_travel_as_their_text_where_the_server_takes_strings_only(kind: ProviderKind) -> None:
    call = KINDS[kind].build_request(provider(kind, state="string"), REQUEST)
    sent = call.body.decode()
    assert msgspec.json.encode(REQUEST.state).decode() in sent
    assert msgspec.json.encode(REQUEST.questions[0].instructions).decode() in sent
    assert REQUEST.questions[1].instructions in sent  # a string already


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_text_never_quotes_the_reply(kind: ProviderKind) -> None:
    problem = (
        b'{"error_type":"sk_canary","type":"sk_canary","code":"sk_canary","message":"bad key sk_canary"}'
    )
    echoes = [
        b'{"%b":%b}' % (key, text) for key in (b"detail", b"error") for text in (problem, b'"sk_canary"')
    ]
    for status, echo in itertools.product((400, 401, 403, 404, 422, 429, 500, 503, 529), echoes):
        with pytest.raises(ProviderError) as caught:
            KINDS[kind].parse_response(REQUEST, status, {"retry-after": "sk_canary"}, echo)
        assert "sk_canary" not in f"{caught.value!s} {caught.value!r}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_known_reason_is_named(kind: ProviderKind) -> None:
    body = b'{"detail":{"error_type":"max_tokens_exceeded","message":"x"}}'
    with pytest.raises(ProviderError, match=r"HTTP 400 \(max_tokens_exceeded\)"):
        KINDS[kind].parse_response(REQUEST, 400, {}, body)


@pytest.mark.parametrize("kind", KINDS)
def test_endless_nesting_is_malformed_and_nothing_worse(kind: ProviderKind) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    for body in (deep, b'{"answers":%b}' % deep, b'{"answers":{},"usage":%b}' % deep):
        with pytest.raises(ProviderError) as caught:
            KINDS[kind].parse_response(REQUEST, 200, {}, body)
        assert caught.value.kind == "malformed"
    with pytest.raises(ProviderError):
        KINDS[kind].parse_response(REQUEST, 400, {}, b'{"detail":%b}' % deep)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_a_damaged_reply_is_read_or_refused_but_never_anything_else(
    kind: ProviderKind, data: st.DataObject
) -> None:
    body = bytearray(body_of(load(kind, "success")["reply"]))
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        if not body:
            break
    try:
        reply = KINDS[kind].parse_response(REQUEST, 200, {}, bytes(body))
    except ProviderMalformedError:
        return
    assert len(reply.answers) == len(REQUEST.questions)
    for question, answer in zip(REQUEST.questions, reply.answers, strict=True):
        if isinstance(answer, Answer):
            assert answer.choice in question.options
            if answer.probabilities is not None:
                assert len(answer.probabilities) == len(question.options)
                assert sum(answer.probabilities) == pytest.approx(1)
                assert answer.confidence is not None
                assert 0 <= answer.confidence <= 1
