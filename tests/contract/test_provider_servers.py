"""The System One adapter against servers written by others, and others' clients against our simulator."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from server_processes import BIN, free_port, run, running
from typesafe_sdk import AsyncTypeSafeClient, Choice, Noul, Score

from shared.config import ProviderConfig
from workers.providers.base import Answer, ModelRequest, NoAnswer, Question
from workers.providers.client import Attempt, ProviderClient
from workers.providers.transport import ProviderTransport

KEY = "sk-contract"
STATE = '{"world":"A cave with one exit.","world_state":{"player_hp_fraction":0.5}}'


def question(name: str, hp: float, options: tuple[str, ...] = ("attack", "flee", "patrol")) -> Question:
    criteria = json.dumps({option: f"The {option} action" for option in options}, separators=(",", ":"))
    return Question(
        name, json.dumps({"type": "goblin", "observation": {"hp_fraction": hp}}), criteria, options
    )


REQUEST = ModelRequest(STATE, [question(f"q{place}", place / 16) for place in range(16)])


@pytest.fixture
async def transport() -> AsyncIterator[ProviderTransport]:
    transport = ProviderTransport()
    yield transport
    await transport.close()


async def ask(
    url: str, transport: ProviderTransport, request: ModelRequest = REQUEST, model: str = "jev-latest"
) -> Attempt:
    provider = ProviderConfig(
        kind="systemone",
        base_url=url,
        model=model,
        key_env="KEY",
        timeout_ms=20_000,
        price_per_mtok_usd=0.042,
    )
    return await ProviderClient("main", provider, transport, {"KEY": KEY}).ask(request, 20_000)


def mock(port: int, *options: str) -> list[str]:
    return [str(BIN / "jevcompat"), "mock", "--port", str(port), *options]


def simulator(port: int, *options: str) -> list[str]:
    return [str(BIN / "python"), "-m", "loadtests.simulator", "--port", str(port), *options]


def codes(attempt: Attempt) -> set[str]:
    assert attempt.reply is not None, attempt.error
    return {answer.code if isinstance(answer, NoAnswer) else "answered" for answer in attempt.reply.answers}


async def test_a_real_model_answers_and_is_costed_by_our_estimate(transport: ProviderTransport) -> None:
    port = free_port()
    async with running(str(BIN / "sparrow-decider"), "serve", "--port", str(port), port=port) as url:
        attempt = await ask(url, transport)
        again = await ask(url, transport)
    assert codes(attempt) == {"answered"}
    assert attempt.reply is not None
    assert attempt.reply.model.startswith("sparrow")
    for answer in attempt.reply.answers:
        assert isinstance(answer, Answer)
        assert answer.choice in ("attack", "flee", "patrol")
        assert answer.probabilities is not None
        assert sum(answer.probabilities) == pytest.approx(1)
    assert attempt.estimated
    assert attempt.usage.input_tokens == REQUEST.estimated_tokens
    assert attempt.cost_nanousd == 42 * REQUEST.estimated_tokens
    assert again.reply is not None
    assert again.reply.answers == attempt.reply.answers


async def test_the_real_model_is_never_sent_a_single_option(transport: ProviderTransport) -> None:
    port = free_port()
    request = ModelRequest(STATE, [question("q1", 0.5), question("q2", 0.5, ("wait",))])
    async with running(str(BIN / "sparrow-decider"), "serve", "--port", str(port), port=port) as url:
        attempt = await ask(url, transport, request)
    assert attempt.reply is not None
    assert isinstance(attempt.reply.answers[0], Answer)
    assert isinstance(attempt.reply.answers[1], NoAnswer)


async def test_the_reference_server_answers_with_key_and_usage(transport: ProviderTransport) -> None:
    port = free_port()
    async with running(*mock(port, "--key", KEY), port=port) as url:
        attempt = await ask(url, transport)
    assert codes(attempt) == {"answered"}
    assert not attempt.estimated
    assert attempt.cost_nanousd == 42 * attempt.usage.input_tokens > 0


async def test_the_reference_server_refuses_a_wrong_key(transport: ProviderTransport) -> None:
    port = free_port()
    async with running(*mock(port, "--key", "another"), port=port) as url:
        attempt = await ask(url, transport)
    assert attempt.error is not None
    assert attempt.error.kind == "credentials"
    assert attempt.cost_nanousd == 0


# What each way of breaking the format must come to: an error's kind, or the outcome of the single answers.
FAULTS = {
    "wrong-route": "rejected",
    "xssi-200": "malformed",
    "plain-content-type": {"answered"},
    "auth-rejects-header": "credentials",
    "reject-jev-latest": "rejected",
    "string-only-text": "rejected",
    "first-question-only": {"answered", "invalid_choice"},
    "no-usage": {"answered"},
    "float-usage": {"answered"},
    "extra-answer": {"answered"},
    "nan": "malformed",
    "unprefixed-extra": {"answered"},
    "choice-no-confidence": {"answered"},
    "choice-sum": {"invalid_choice"},
    "choice-second": {"invalid_choice"},
    "confidence-over": {"answered"},
    "confidence-margin": {"answered"},
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_server_that_breaks_the_format_harms_no_more_than_it_must(
    transport: ProviderTransport, fault: str
) -> None:
    port = free_port()
    async with running(*mock(port, "--fault", fault), port=port) as url:
        attempt = await ask(url, transport)
    expected = FAULTS[fault]
    if isinstance(expected, str):
        assert attempt.error is not None
        assert attempt.error.kind == expected
    elif fault == "choice-second":  # where the two likeliest are even, the second counts
        assert "invalid_choice" in codes(attempt)
    else:
        assert codes(attempt) == expected


async def test_option_names_changed_by_the_server_are_not_taken_for_ours(
    transport: ProviderTransport,
) -> None:
    port = free_port()
    request = ModelRequest(STATE, [question("q1", 0.5, ("Attack", "FLEE"))])
    async with running(*mock(port, "--fault", "choice-key-case"), port=port) as url:
        attempt = await ask(url, transport, request)
    assert codes(attempt) == {"invalid_choice"}


async def test_strings_only_servers_are_served_by_configuration(transport: ProviderTransport) -> None:
    port = free_port()
    async with running(*mock(port, "--fault", "string-only-text"), port=port) as url:
        provider = ProviderConfig(kind="systemone", base_url=url, model="jev-latest", state="string")
        attempt = await ProviderClient("main", provider, transport, {}).ask(REQUEST, 20_000)
    assert codes(attempt) == {"answered"}


async def test_a_key_sent_to_the_simulator_must_be_its_own(transport: ProviderTransport) -> None:
    port = free_port()
    async with running(*simulator(port, "--key", KEY), port=port) as url:
        right = await ask(url, transport)
    async with running(*simulator(port, "--key", "another"), port=port) as url:
        wrong = await ask(url, transport)
    assert codes(right) == {"answered"}
    assert wrong.error is not None
    assert wrong.error.kind == "credentials"


async def test_the_simulator_counts_the_tokens_that_we_estimate(transport: ProviderTransport) -> None:
    port = free_port()
    wide = ModelRequest('{"world":"Höhle 洞窟 🐉"}', [question("q1", 0.25), question("q2", 0.5)])
    async with running(*simulator(port), port=port) as url:
        for request in (REQUEST, wide):
            attempt = await ask(url, transport, request)
            assert attempt.usage.input_tokens == request.estimated_tokens
            assert not attempt.estimated


@pytest.mark.parametrize("key", ["", KEY])
async def test_the_simulator_conforms_by_the_reference_suite(key: str, tmp_path: Path) -> None:
    port = free_port()
    report = tmp_path / "report.json"
    options = ["--key", key] if key else []
    async with running(*simulator(port, *options), port=port) as url:
        status, output = await run(str(BIN / "jevcompat"), "test", url, *options, "--json", str(report))
    assert status == 0, output
    levels = {"MUST": 33, "SHOULD": 15}
    untested = 1 if key else 3  # of auth: what applies only without, or only with, a key
    passed = output.count("✓ MUST") + output.count("✓ SHOULD")
    assert passed == sum(levels.values()) - untested, output


async def test_the_official_client_reads_the_simulator() -> None:
    port = free_port()
    async with (
        running(*simulator(port, "--key", KEY), port=port) as url,
        AsyncTypeSafeClient(api_key=KEY, base_url=url, timeout=20) as client,
    ):
        reply, models = await asyncio.gather(
            client.system_one(
                state={
                    "world": "A cave.",
                    "padding": "x" * 4_000,
                },  # long enough to be compressed, if it can
                questions={
                    "choice": Choice(instructions="What next?", criteria={"attack": "Hit", "flee": None}),
                    "noul": Noul(instructions="Is it dark?"),
                    "score": Score(instructions="How dark?", criteria=["light", "dim", "dark"]),
                },
            ),
            client.models.list(),
        )
    assert reply.model == "simulator-1"
    assert reply.choices["choice"].choice in {"attack", "flee"}
    assert 0 <= reply.nouls["noul"].noul <= 1
    assert 0 <= reply.scores["score"].score <= 2
    assert reply.usage.input_tokens is not None
    assert reply.usage.input_tokens > 1_000
    assert "simulator-1" in [model.name for model in models.models]
