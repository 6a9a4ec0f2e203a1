"""System One bodies, answers judged, caps, keys: values in, values out."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config import ProviderConfig
from shared.errors import ConfigError
from workers.providers.answers import confidence_of, judged
from workers.providers.base import Answer, ModelRequest, NoAnswer, Question
from workers.providers.caps import check_request, unaskable
from workers.providers.credentials import read_key
from workers.providers.errors import ProviderRejectedError
from workers.providers.systemone import build_request, parse_response


def provider(**more: object) -> ProviderConfig:
    values = {"kind": "systemone", "base_url": "http://h", "model": "m"} | more
    return ProviderConfig(**values)  # type: ignore[arg-type]


def question(options: tuple[str, ...] = ("a", "b"), name: str = "q1") -> Question:
    criteria = json.dumps(dict.fromkeys(options, "x"), separators=(",", ":"))
    return Question(name, '{"hp":1}', criteria, options)


def test_texts_are_spliced_as_they_are() -> None:
    odd = '{"n":1.50,"s":"\\u00e9"}'  # valid JSON that no encoder would write like this
    body = build_request(provider(), ModelRequest(odd, [Question("q1", odd, '{"a":"A"}', ("a",))])).body
    assert body.count(odd.encode()) == 2


def test_a_model_name_is_escaped() -> None:
    body = build_request(provider(model='a"b\\'), ModelRequest("{}", [question()])).body
    assert json.loads(body)["model"] == 'a"b\\'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    state=JSON, instructions=st.lists(st.dictionaries(st.text(), JSON, max_size=3), min_size=1, max_size=4)
)
def test_a_body_reads_back_as_what_was_put_in(state: object, instructions: list[dict[str, object]]) -> None:
    questions = [
        Question(f"q{place}", msgspec.json.encode(each).decode(), '{"a":"A","b":null}', ("a", "b"))
        for place, each in enumerate(instructions)
    ]
    body = build_request(provider(), ModelRequest(msgspec.json.encode(state).decode(), questions)).body
    read = json.loads(body)
    assert read["state"] == state
    assert [each["instructions"] for each in read["questions"].values()] == instructions


def test_the_estimate_counts_characters_not_bytes() -> None:
    request = ModelRequest(
        '"äöü"', [Question("q1", '"洞窟"', '{"a":1}', ("a",))]
    )  # 5 + 4 + 7 = 16 characters
    assert request.estimated_tokens == 4
    assert ModelRequest('"äöü."', request.questions).estimated_tokens == 5


@pytest.mark.parametrize(
    ("shares", "choice", "confidence"),
    [
        ({"a": 0.75, "b": 0.25}, "a", 0.5),
        ({"a": 0.5, "b": 0.5}, "b", 0.0),
        ({"a": 1, "b": 0}, "a", 1.0),
        ({"b": 0.75, "a": 0.25}, "b", 0.5),
        ({"a": 0.495, "b": 0.505}, "a", 0.01),
    ],
)
def test_confidence_is_computed_from_the_probabilities(
    shares: dict[str, float], choice: str, confidence: float
) -> None:
    answer = judged(question(), choice, shares)
    assert isinstance(answer, Answer)
    assert answer.confidence == pytest.approx(confidence)
    assert answer.probabilities == (shares["a"], shares["b"])


@pytest.mark.parametrize(
    ("shares", "choice"),
    [
        ({"a": 0.53, "b": 0.501}, "a"),  # 1.031
        ({"a": 0.5, "b": 0.469}, "a"),  # 0.969
        ({"a": 0.48, "b": 0.52}, "a"),
        ({"a": float("nan"), "b": 0.5}, "b"),
        ({"a": float("nan"), "b": 0.5}, "a"),
        ({"a": float("inf"), "b": 0.5}, "a"),
        ({"a": -0.01, "b": 1.0}, "b"),
        ({"a": 0.0, "b": 1.01}, "b"),
        ({"a": 1.0}, "a"),
        ({"a": 0.5, "b": 0.5, "c": 0.0}, "a"),
        ({"a": 0.5, "c": 0.5}, "a"),
        ({}, "a"),
        ({"a": 0.5, "b": 0.5}, "c"),
        ({"a": 0.5, "b": 0.5}, ""),
        (None, "A"),
    ],
)
def test_an_answer_that_disagrees_with_the_question_is_an_invalid_choice(
    shares: dict[str, float] | None, choice: str
) -> None:
    answer = judged(question(), choice, shares)
    assert isinstance(answer, NoAnswer)
    assert answer.code == "invalid_choice"


@pytest.mark.parametrize("total", [0.97, 0.98, 1.02, 1.03])
def test_sums_within_the_tolerance_are_renormalised(total: float) -> None:
    answer = judged(question(), "a", {"a": total - 0.25, "b": 0.25})
    assert isinstance(answer, Answer)
    assert answer.probabilities is not None
    assert sum(answer.probabilities) == pytest.approx(1)
    assert answer.probabilities[1] == pytest.approx(0.25 / total)
    assert answer.confidence == pytest.approx(2 * (1 - 0.25 / total) - 1)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40).filter(lambda weights: sum(weights) > 0))
def test_confidence_stays_within_0_and_1(weights: list[float]) -> None:
    shares = [weight / sum(weights) for weight in weights]
    assert 0 <= confidence_of(max(shares), len(shares)) <= 1


def test_one_option_is_certain() -> None:
    assert confidence_of(0.4, 1) == 1


def test_a_call_over_the_caps_is_ours_to_refuse() -> None:
    request = ModelRequest('"' + "x" * 398 + '"', [question()] * 3)  # 400 + 3 × (8 + 17) characters
    assert request.estimated_tokens == 119
    check_request(provider(max_questions=3, max_request_tokens=119), request)
    with pytest.raises(ProviderRejectedError, match="3 questions"):
        check_request(provider(max_questions=2), request)
    with pytest.raises(ProviderRejectedError, match="119 tokens"):
        check_request(provider(max_request_tokens=118), request)


def test_questions_with_too_many_or_too_few_options_are_found() -> None:
    many = tuple(f"o{number}" for number in range(256))
    asked = [question(("a",)), question(many), question(many[:255]), question()]
    assert set(unaskable(provider(), ModelRequest("{}", asked))) == {0, 1}
    assert set(unaskable(provider(max_options=26), ModelRequest("{}", asked))) == {0, 1, 2}


def test_a_long_model_name_is_cut() -> None:
    body = msgspec.json.encode({"answers": {}, "model": "m" * 5_000})
    assert len(parse_response(ModelRequest("{}", []), 200, {}, body).model) == 128


def test_a_key_comes_from_the_environment_or_a_file_and_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-file\n")
    from_env = read_key("main", provider(key_env="KEY"), {"KEY": " sk-env "})
    from_file = read_key("main", provider(key_file=str(file)), {})
    assert from_env is not None
    assert from_file is not None
    assert (from_env.reveal(), from_file.reveal()) == ("sk-env", "sk-file")
    assert "sk-" not in f"{from_env!r} {from_env!s} {[from_file]}"


def test_a_key_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert read_key("main", provider(), {"KEY": "x"}) is None
    assert read_key("main", provider(key_env="KEY"), {}) is None
    assert read_key("main", provider(key_env="KEY"), {"KEY": " "}) is None
    assert read_key("main", provider(key_file=str(tmp_path / "none")), {}) is None


@pytest.mark.parametrize("value", ["sk one", "sk\r\nx-evil: 1", "clé", "k" * 4_097])
def test_what_cannot_stand_in_a_header_is_no_key(value: str) -> None:
    with pytest.raises(ConfigError, match=r"^providers\.main\.key_env: ") as caught:
        read_key("main", provider(key_env="KEY"), {"KEY": value})
    assert value not in str(caught.value)


def test_a_key_file_of_bytes_is_no_key(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"^providers\.main\.key_file: "):
        read_key("main", provider(key_file=str(file)), {})
