"""The provider simulator over real HTTP: its two formats, its faults, its control, its command line."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from loadtests.simulator.faults import Faults
from loadtests.simulator.server import Simulator

Start = Callable[..., Awaitable[str]]

CRITERIA = {"attack": "Hit", "flee": "Run", "patrol": None}


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts a simulator with the given faults and options; returns its address."""
    runners: list[web.AppRunner] = []

    async def start(faults: dict[str, Any] | None = None, **options: Any) -> str:
        runner = web.AppRunner(Simulator(Faults(**(faults or {})), **options).app(), shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def system_one(count: int = 1, **more: Any) -> dict[str, Any]:
    asked = {
        f"q{place}": {"type": "choice", "instructions": {"n": place}, "criteria": CRITERIA}
        for place in range(count)
    }
    return {"model": "any", "state": {"world": "A cave."}, "questions": asked} | more


def decisions(count: int = 1, **more: Any) -> dict[str, Any]:
    choices = [{"value": "attack", "description": "Hit"}, {"value": "flee"}]
    asked = [
        {"type": "choice", "name": f"q{place}", "instructions": f"Entity {place}", "choices": choices}
        for place in range(count)
    ]
    return {"model": "any", "input": "A cave.", "questions": asked} | more


async def post(http: aiohttp.ClientSession, url: str, body: object, path: str = "/v1/systemone") -> Any:
    async with http.post(url + path, json=body) as response:
        return response.status, await response.json(), response.headers


async def stats(http: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    async with http.get(url + "/stats") as response:
        value: dict[str, Any] = await response.json()
        return value


async def test_an_answer_depends_on_the_question_alone(start: Start, http: aiohttp.ClientSession) -> None:
    one, other = await start(), await start({}, seed=99)
    _, alone, _ = await post(http, one, system_one(1))
    _, among, _ = await post(http, one, system_one(20))
    _, elsewhere, _ = await post(http, other, system_one(3, state="Another state", model="x"))
    assert alone["answers"]["q0"] == among["answers"]["q0"] == elsewhere["answers"]["q0"]
    assert len({answer["choice"] for answer in among["answers"].values()}) > 1


async def test_it_says_what_it_is(start: Start, http: aiohttp.ClientSession) -> None:
    _, reply, headers = await post(http, await start(), system_one())
    assert reply["model"] == "simulator-1"
    assert "simulator" in headers["server"]


async def test_tokens_are_a_quarter_of_the_characters_that_a_model_would_see(
    start: Start, http: aiohttp.ClientSession
) -> None:
    body = {
        "model": "m",
        "state": "nine char",
        "questions": {
            "an id that no model sees": {
                "type": "choice",
                "instructions": "é" * 10,
                "criteria": {"a": "A", "b": "B"},
            }
        },
    }
    raw = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    async with http.post(await start() + "/v1/systemone", data=raw) as response:
        reply = await response.json()
    assert reply["usage"] == {"input_tokens": 9, "output_tokens": 0}  # 9 + 10 + 17 = 36 characters


async def test_decisions_answers_in_order_with_the_names_given(
    start: Start, http: aiohttp.ClientSession
) -> None:
    status, reply, _ = await post(http, await start(), decisions(3), "/v1/decisions")
    assert status == 200
    assert [answer["name"] for answer in reply["answers"]] == ["q0", "q1", "q2"]
    for answer in reply["answers"]:
        shares = {each["value"]: each["probability"] for each in answer["probabilities"]}
        assert list(shares) == ["attack", "flee"]
        assert sum(shares.values()) == pytest.approx(1)
        assert answer["choice"] == max(shares, key=lambda value: shares[value])
    usage = reply["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] > 0


def without(body: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != key}


def choice(**more: Any) -> dict[str, Any]:
    return {"q": {"type": "choice", "instructions": "x", "criteria": CRITERIA} | more}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (without(system_one(), "state"), 422),
        (without(system_one(), "model"), 422),
        (without(system_one(), "questions"), 422),
        (system_one(state=None), 422),
        (system_one(state=3), 422),
        (system_one(0), 422),
        (system_one(801), 422),
        ([], 422),
        (system_one(1, questions=choice(type="boolean")), 422),
        (system_one(1, questions=choice(instructions=3)), 422),
        (system_one(1, questions=choice(criteria={})), 422),
        (system_one(1, questions=choice(criteria={"only": "one"})), 422),
        (system_one(1, questions=choice(criteria={str(n): None for n in range(256)})), 422),
        (system_one(1, questions=choice(criteria={"a": 1, "b": 2})), 422),
        (system_one(1, questions=choice(criteria=["a", "b"])), 422),
        (system_one(1, questions=choice(weight=1)), 422),
        (system_one(1, questions={"q": {"type": "score", "criteria": ["one"]}}), 422),
        (system_one(1, questions={"q": {"type": "noul", "criteria": {"maybe": "x"}}}), 422),
        (system_one(state="x" * 256_001), 400),
        (system_one(model="no-such-model-1"), 400),
        (system_one(1, questions=choice(criteria={str(n): None for n in range(255)})), 200),
        (system_one(800), 200),
    ],
)
async def test_system_one_is_strict_about_requests(
    start: Start, http: aiohttp.ClientSession, body: object, status: int
) -> None:
    got, reply, _ = await post(http, await start(), body)
    assert got == status, reply
    if status == 422:
        assert reply["detail"][0]["loc"][0] == "body"
        assert {"loc", "msg", "type"} == set(reply["detail"][0])
    if status == 400:
        assert set(reply["detail"]) == {"error_type", "message"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (without(decisions(), "input"), 400),
        (decisions(0), 400),
        (decisions(401), 400),
        (decisions(400), 200),
        (decisions(input=[{"role": "user", "content": "x"}]), 200),
        (decisions(input=7), 400),
        (decisions(model="no-such-model-1"), 404),
    ]
    + [
        (decisions(questions=[{"type": "choice", "instructions": "x", "choices": choices}]), 400)
        for choices in (
            [],
            [{"value": "one"}],
            [{"value": "same"}, {"value": "same"}],
            [{"value": str(n)} for n in range(256)],
            ["a", "b"],
        )
    ],
)
async def test_decisions_is_strict_about_requests(
    start: Start, http: aiohttp.ClientSession, body: object, status: int
) -> None:
    got, reply, _ = await post(http, await start(), body, "/v1/decisions")
    assert got == status, reply
    if status != 200:
        assert {"message", "type", "code"} == set(reply["error"])


@pytest.mark.parametrize("path", ["/v1/systemone", "/v1/decisions"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 50_000 + b"]" * 50_000,
        b'{"model":"m","state":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    ],
    ids=["empty", "cut", "not-utf8", "nested", "nested-state"],
)
async def test_what_is_not_json_is_refused_and_never_breaks_it(
    start: Start, http: aiohttp.ClientSession, path: str, body: bytes
) -> None:
    async with http.post(await start() + path, data=body) as response:
        assert response.status in {400, 422}
        assert response.content_type == "application/json"


@pytest.mark.parametrize(
    ("path", "authorization", "status"),
    [
        ("/v1/systemone", None, 403),
        ("/v1/systemone", "Bearer wrong", 401),
        ("/v1/systemone", "Bearer wröng", 401),
        ("/v1/systemone", "Basic right", 403),
        ("/v1/systemone", "Bearer right", 200),
        ("/v1/decisions", "Bearer wrong", 401),
    ],
)
async def test_a_key_is_demanded_when_one_is_set(
    start: Start, http: aiohttp.ClientSession, path: str, authorization: str | None, status: int
) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    body = system_one() if path == "/v1/systemone" else decisions()
    async with http.post(await start(key="right") + path, json=body, headers=headers) as response:
        assert response.status == status


async def test_error_rates_apply_with_the_formats_own_bodies(
    start: Start, http: aiohttp.ClientSession
) -> None:
    url = await start({"error_rates": {529: 1.0}})
    assert (await post(http, url, system_one()))[:2] == (529, {"detail": "simulated fault 529"})
    status, reply, _ = await post(http, url, decisions(), "/v1/decisions")
    assert (status, reply["error"]["type"]) == (529, "server_error")


async def test_error_rates_are_shares(start: Start, http: aiohttp.ClientSession) -> None:
    url = await start({"error_rates": {429: 0.2, 500: 0.1}}, seed=7)
    for _ in range(200):
        await post(http, url, system_one())
    by_status = (await stats(http, url))["by_status"]
    assert 20 <= by_status["429"] <= 60
    assert 8 <= by_status["500"] <= 36
    assert sum(by_status.values()) == 200


async def test_the_same_seed_meets_the_same_faults(start: Start, http: aiohttp.ClientSession) -> None:
    faults = {"error_rates": {529: 0.3}, "missing_rate": 0.3, "malformed_rate": 0.2}

    async def seen(seed: int) -> list[tuple[int, bytes]]:
        url = await start(faults, seed=seed)
        found = []
        for _ in range(20):
            async with http.post(url + "/v1/systemone", json=system_one(4)) as response:
                found.append((response.status, await response.read()))
        return found

    assert await seen(1) == await seen(1) != await seen(2)


async def test_missing_answers_stay_out_or_are_refusals(start: Start, http: aiohttp.ClientSession) -> None:
    url = await start({"missing_rate": 0.5})
    _, one, _ = await post(http, url, system_one(100))
    _, two, _ = await post(http, url, decisions(100), "/v1/decisions")
    assert 25 <= len(one["answers"]) <= 75
    refused = [answer for answer in two["answers"] if answer["type"] == "refusal"]
    assert 25 <= len(refused) <= 75
    assert len(two["answers"]) == 100
    assert (await stats(http, url))["missing"] == 100 - len(one["answers"]) + len(refused)


async def test_malformed_replies_come_in_every_way(start: Start, http: aiohttp.ClientSession) -> None:
    url = await start({"malformed_rate": 1.0})
    kinds = set()
    for _ in range(40):
        async with http.post(url + "/v1/systemone", json=system_one()) as response:
            assert response.status == 200
            kinds.add((await response.read())[:20])
            text = await response.text()
        if "simulated fault" in text:
            kinds.add(b"alien option")
        if ":9." in text:
            kinds.add(b"no distribution")
    assert {b"<html><body>502 Bad ", b'{"result":"ok"}', b"alien option", b"no distribution"} <= kinds
    assert (await stats(http, url))["malformed"] == 40


async def test_dropped_requests_lose_their_connection(start: Start, http: aiohttp.ClientSession) -> None:
    url = await start({"drop_rate": 1.0})
    with pytest.raises(aiohttp.ClientError):
        await post(http, url, system_one())
    counted = await stats(http, url)
    assert (counted["dropped"], counted["by_status"], counted["tokens"]) == (1, {}, 0)


async def test_more_at_once_than_allowed_is_529(start: Start, http: aiohttp.ClientSession) -> None:
    url = await start({"concurrency": 2, "latency_ms": 150})
    replies = await asyncio.gather(*(post(http, url, system_one()) for _ in range(5)))
    assert sorted(status for status, _, _ in replies) == [200, 200, 529, 529, 529]
    assert (await stats(http, url))["peak_in_flight"] == 2


async def test_a_request_quota_is_429_and_says_when_to_come_back(
    start: Start, http: aiohttp.ClientSession
) -> None:
    url = await start({"requests_per_s": 2})
    replies = [await post(http, url, system_one()) for _ in range(4)]
    assert [status for status, _, _ in replies] == [200, 200, 429, 429]
    headers = replies[-1][2]
    assert headers["retry-after"] == "1"
    assert 1 <= int(headers["retry-after-ms"]) <= 500


async def test_a_token_quota_is_429(start: Start, http: aiohttp.ClientSession) -> None:
    url = await start({"tokens_per_s": 30})
    replies = [
        await post(
            http,
            url,
            system_one(),
        )
        for _ in range(3)
    ]
    tokens = replies[0][1]["usage"]["input_tokens"]
    assert 15 < tokens <= 30
    assert [status for status, _, _ in replies] == [200, 429, 429]
    assert (await stats(http, url))["tokens"] == tokens


async def test_latency_is_kept(start: Start, http: aiohttp.ClientSession) -> None:
    url = await start({"latency_ms": 60, "jitter_ms": 5})
    before = asyncio.get_running_loop().time()
    await post(http, url, system_one())
    assert asyncio.get_running_loop().time() - before >= 0.059


async def test_a_caller_that_left_is_counted(start: Start, http: aiohttp.ClientSession) -> None:
    url = await start({"latency_ms": 120})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.04):
            await post(http, url, system_one())
    async with asyncio.timeout(5):
        while (await stats(http, url))["in_flight"]:
            pass
    assert (await stats(http, url))["abandoned"] == 1


async def test_control_changes_faults_and_counts_anew(start: Start, http: aiohttp.ClientSession) -> None:
    url = await start({"latency_ms": 1})
    await post(http, url, system_one())
    change = {"faults": {"error_rates": {"503": 1}, "missing_rate": 0.5}, "reset_stats": True}
    status, reply, _ = await post(http, url, change, "/control")
    assert status == 200
    assert (reply["faults"]["latency_ms"], reply["faults"]["missing_rate"]) == (1, 0.5)
    assert (await stats(http, url))["requests"] == 0
    assert (await post(http, url, system_one()))[0] == 503


@pytest.mark.parametrize(
    "change", [{"faults": {"drop_rate": 2}}, {"faults": {"speed": 1}}, {"outage": 1}, [], {"faults": []}]
)
async def test_control_refuses_what_it_does_not_know(
    start: Start, http: aiohttp.ClientSession, change: object
) -> None:
    url = await start()
    assert (await post(http, url, change, "/control"))[0] == 400
    assert (await post(http, url, system_one()))[0] == 200


async def test_control_takes_no_form_that_a_page_could_send(
    start: Start, http: aiohttp.ClientSession
) -> None:
    async with http.post(await start() + "/control", data=b'{"faults":{"drop_rate":1}}') as response:
        assert response.status == 415


async def test_an_outage_can_be_called_and_ended(start: Start, http: aiohttp.ClientSession) -> None:
    url = await start()
    await post(http, url, {"outage_s": 60}, "/control")
    with pytest.raises(aiohttp.ClientError):
        await post(http, url, system_one())
    await post(http, url, {"outage_s": 0}, "/control")
    assert (await post(http, url, system_one()))[0] == 200


async def test_an_outage_cuts_what_is_in_flight(start: Start, http: aiohttp.ClientSession) -> None:
    url = await start({"latency_ms": 150})
    call = asyncio.ensure_future(post(http, url, system_one()))
    async with asyncio.timeout(5):
        while not (await stats(http, url))["in_flight"]:
            pass
    await post(http, url, {"outage_s": 60}, "/control")
    with pytest.raises(aiohttp.ClientError):
        await call


async def test_an_unknown_path_is_404_in_json(start: Start, http: aiohttp.ClientSession) -> None:
    async with http.get(await start() + "/nowhere") as response:
        assert response.status == 404
        assert (await response.json())["detail"]["error_type"] == "not_found"


async def test_the_command_announces_itself_and_ends_on_sigterm(http: aiohttp.ClientSession) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loadtests.simulator", "--port", "0"),
        *("--error-rate", "529=1", "--outage", "60:1"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode().split()
    assert line[0] == "ready"
    assert line[1].startswith("http://127.0.0.1:")
    assert (await post(http, line[1], system_one()))[0] == 529
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    assert process.returncode == 0


@pytest.mark.parametrize(
    "option",
    [
        ("--error-rate", "529"),
        ("--error-rate", "529=2"),
        ("--error-rate", "7=0.1"),
        ("--outage", "5"),
        ("--missing-rate", "-1"),
    ],
)
async def test_the_command_refuses_impossible_options(option: tuple[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "loadtests.simulator", *option, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert b"Error" in errors
