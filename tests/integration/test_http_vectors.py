"""The A2G 0.1 vectors against a running platform, through its wire and its provider's."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.decide_platform import DecidePlatform, Session, game_of
from tests.raw_http import RawReply, connected, request_bytes, require_rules

VECTORS = Path(__file__).parents[1] / "vectors" / "a2g"
ABSENT = object()

Json = Any

# Contradicted by "profile of an undeclared type" of the same file and by the table at the end of its README.
CONTRADICTED = "refused profile keeps the good scope out too"


def cases(file_name: str) -> list[Any]:
    loaded = json.loads((VECTORS / file_name).read_text(encoding="utf-8"))["cases"]
    return [pytest.param(case, id=case["name"]) for case in loaded]


def compact(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def body_of(case: dict[str, Json]) -> bytes:
    if "body_hex" in case:
        return bytes.fromhex(case["body_hex"])
    text = case["body_text"] if "body_text" in case else compact(case["body"]) if "body" in case else ""
    return text.encode().ljust(case.get("body_bytes_len", 0))


def headers_of(case: dict[str, Json], port: int) -> list[tuple[str, str]]:
    fields: dict[str, str | None] = {"Host": "127.0.0.1:{port}"}
    if case["method"] in ("POST", "PUT", "PATCH"):
        fields["Content-Type"] = "application/json"
    fields |= case["headers"]
    return [(name, value.format(port=port)) for name, value in fields.items() if value is not None]


def pointed(value: Json, pointer: str) -> Json:
    """What a JSON Pointer (RFC 6901) finds, ABSENT for nothing."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict) and key in value:
            value = value[key]
        else:
            return ABSENT
    return value


def require_check(check: dict[str, Json], reply: RawReply) -> None:
    found = pointed(reply.json, check["at"]) if "at" in check else ABSENT
    if "header" in check and reply.all(check["header"]):
        found = reply.all(check["header"])[0]
    (rule,) = set(check) - {"at", "header"}
    match rule:
        case "absent":
            assert found is ABSENT
        case "equals":
            assert found == check[rule]
            assert isinstance(found, bool) == isinstance(check[rule], bool)
        case "type":
            assert type(found) is {"string": str, "integer": int}[check[rule]]
        case "contains" if isinstance(found, list):
            assert any(check[rule] in one for one in found)
        case "contains":
            assert isinstance(found, str)
            assert check[rule] in found
        case _:
            pytest.fail(f"unknown check {rule}")


@pytest.mark.parametrize("case", cases("http.json"))
async def test_http(case: dict[str, Json], decide_platform: DecidePlatform) -> None:
    port = decide_platform.port
    if "session" in case:
        await decide_platform.opened(case["session"]["manifest"], client_id=case["session"]["client_id"])
    async with connected(port) as connection:
        headers = headers_of(case, port)
        chunked = case.get("chunked", False)
        await connection.send(
            request_bytes(case["method"], case["path"], headers, body_of(case), chunked=chunked)
        )
        reply = await connection.reply(case["method"])
    assert reply is not None
    require_rules(reply, case["method"])
    allowed = case["status"] if isinstance(case["status"], list) else [case["status"]]
    assert reply.status in allowed, reply
    for check in case["body_checks"]:
        require_check(check, reply)


def require_errors(reply: RawReply, case: dict[str, Json]) -> None:
    for part in case.get("error_contains", []):
        assert part in reply.json["error"]


@pytest.mark.parametrize("case", cases("manifest_hash.json"))
async def test_manifest_hash(case: dict[str, Json], decide_platform: DecidePlatform) -> None:
    manifest = case.get("manifest_text") or compact(case["manifest"])
    body = f'{{"a2g":"0.1","client_id":"c-hash","manifest":{manifest}}}'
    reply = await decide_platform.ok("/v1/session", body.encode())
    assert reply["manifest_hash"] == case["hash"]


@pytest.mark.parametrize("case", cases("manifest.json"))
async def test_manifest(case: dict[str, Json], decide_platform: DecidePlatform) -> None:
    manifest = case.get("manifest_text") or compact(case["manifest"])
    body = f'{{"a2g":"0.1","client_id":"c-manifest","manifest":{manifest}}}'
    reply = await decide_platform.post("/v1/session", body.encode())
    assert reply.status == (200 if case["valid"] else 400), reply
    require_errors(reply, case)
    warnings = reply.json.get("warnings", [])
    for part in case.get("warnings_contain", []):
        assert any(part in warning for warning in warnings)
    if case.get("no_warnings"):
        assert warnings == []


@pytest.mark.parametrize("case", cases("decide_request.json"))
async def test_decide_request(case: dict[str, Json], decide_platform: DecidePlatform) -> None:
    body = case.get("request_text") or compact(case["request"])
    request = json.loads(body)
    session = await decide_platform.opened(case["manifest"], client_id=request["client_id"])
    for update in case.get("context_updates", []):
        await session.context(**update)
    reply = await decide_platform.post("/v1/decide", body.encode())
    assert reply.status == (200 if case["valid"] else 400), reply
    require_errors(reply, case)
    if case["valid"]:
        decisions = reply.json["decisions"]
        assert [decision["id"] for decision in decisions] == [entity["id"] for entity in request["entities"]]
        assert {decision["source"] for decision in decisions} == {"AI"}
        assert reply.json["epoch"] == request["epoch"]


def contradicted(case: Json) -> Json:
    if case.values[0]["name"] != CONTRADICTED:
        return case
    return pytest.param(*case.values, id=case.id, marks=pytest.mark.xfail(strict=True, reason=CONTRADICTED))


@pytest.mark.parametrize("case", [contradicted(case) for case in cases("context.json")])
async def test_context(case: dict[str, Json], decide_platform: DecidePlatform) -> None:
    session = await decide_platform.opened(case["manifest"])
    for step in case["steps"]:
        reply = await decide_platform.post("/v1/context", {"client_id": session.client_id, **step["update"]})
        assert reply.status == step["status"], reply
        if "counts" in step:
            assert {key: reply.json[key] for key in ("scopes", "profiles")} == step["counts"]


VALUES = {"number": 1, "boolean": False, "string": ""}


class Asking:
    """A session of a situation case: its types can always be asked, and tell what the provider saw."""

    def __init__(self, session: Session, types: dict[str, Json]) -> None:
        self._session = session
        self._types = types

    def asks(self, kind: str) -> bool:
        return bool(self._types[kind]["actions"])

    async def ask(self, *entities: Json) -> tuple[dict[str, Json], dict[str, Json], dict[str, Json]]:
        """The shared state and each entity's question, as the provider read them, and the decisions."""
        asked = [
            {
                "observation": {
                    name: VALUES[kind] for name, kind in self._types[one["type"]]["fields"].items()
                },
                "legal_actions": list(self._types[one["type"]]["actions"]),
                **one,
            }
            for one in entities
        ]
        decisions = await self._session.decide(*asked)
        call = self._session.calls()[-1]
        assert call.entities == [entity["id"] for entity in entities]
        return call.state, {one.entity: one.instructions for one in call.questions}, decisions


async def asking_session(case: dict[str, Json], platform: DecidePlatform) -> tuple[Session, Asking]:
    types = {name: dict(kind) for name, kind in case["manifest"]["entity_types"].items()}
    for kind in types.values():
        if kind["actions"]:  # a single option would be no question
            kind["actions"] = {**kind["actions"], "another": "Something else"}
    session = await platform.opened(game_of(types))
    return session, Asking(session, types)


@pytest.mark.parametrize("case", cases("situation.json"))
async def test_situation(case: dict[str, Json], decide_platform: DecidePlatform) -> None:
    session, asking = await asking_session(case, decide_platform)
    expect = case["expect"]
    known = {entity["id"]: entity["type"] for body in case["telemetry"] for entity in body["entities"]}
    reported = [*expect.get("memory_dropped", []), *expect.get("memory_kept", [])]
    if reported:
        entities = [{"id": one, "type": known.get(one, "squad")} for one in reported]
        _, _, decisions = await asking.ask(*entities)
        for decision in decisions.values():
            assert (await session.report(decision)).status == 200
    for body in case["telemetry"]:
        await decide_platform.ok("/v1/telemetry", {"client_id": session.client_id, **body})
    last = case["telemetry"][-1]["entities"]
    asked = case.get("asking") or [
        {"id": one["id"], "type": one["type"]} for one in last if asking.asks(one["type"])
    ]
    asked += [
        {"id": one, "type": known.get(one, "squad")}
        for one in reported
        if one not in [a["id"] for a in asked]
    ]
    if not asked:
        asked = [{"id": "somebody", "type": next(name for name in asking_types(case))}]
    state, questions, _ = await asking.ask(*asked)
    require_shared(state, expect)
    require_own(questions, expect)
    for one in expect.get("memory_dropped", []):
        assert "memory" not in questions[one]
    for one in expect.get("memory_kept", []):
        assert len(questions[one]["memory"]) == 1


def asking_types(case: dict[str, Json]) -> list[str]:
    return [name for name, kind in case["manifest"]["entity_types"].items() if kind["actions"]]


def require_shared(state: dict[str, Json], expect: dict[str, Json]) -> None:
    for name, counts in expect.get("population", {}).items():
        assert state["population"][name] == counts
    observed = {entity["id"]: entity for entity in state.get("observed_entities", [])}
    for one, wanted in expect.get("observed_entities", {}).items():
        assert observed[one]["fields"] == wanted["fields"]
        counts = observed[one].get("nearby_counts", {})
        assert {k: n for k, n in counts.items() if n} == wanted.get("nearby_counts", {})
    assert not observed.keys() & set(expect.get("not_observed", []))


def require_own(questions: dict[str, Json], expect: dict[str, Json]) -> None:
    def ids(one: str, part: str) -> list[str]:
        return [found["id"] for found in questions[one].get(part, [])]

    for one, wanted in expect.get("nearby", {}).items():
        assert ids(one, "nearby") == wanted
    for one, others in expect.get("distances", {}).items():
        distances = {found["id"]: found["distance"] for found in questions[one]["nearby"]}
        assert {other: distances[other] for other in others} == pytest.approx(others, abs=1e-6)
    for one, wanted in expect.get("members", {}).items():
        assert ids(one, "members") == wanted
    for one, wanted in expect.get("members_any_order", {}).items():
        assert sorted(ids(one, "members")) == sorted(wanted)
    for one, count in expect.get("members_count", {}).items():
        assert len(ids(one, "members")) == count


# In cases with `parent_action`, whose manifests declare no type for the parent.
LEADER = {"fields": {}, "actions": {"attack": "Attack", "retreat": "Fall back"}}


@pytest.mark.parametrize("case", cases("cache_equivalence.json"))
async def test_cache_equivalence(case: dict[str, Json], decide_platform: DecidePlatform) -> None:
    """What the first session's question answered serves the second exactly where the situations are equal."""
    game = f"Cache {case['name']}"
    cached = []
    for side in ("a", "b"):
        manifest = case["manifest_b"] if side == "b" and "manifest_b" in case else case["manifest"]
        if "parent_action" in case[side]:
            manifest = {**manifest, "entity_types": {**manifest["entity_types"], "leader": LEADER}}
        session = await decide_platform.opened(manifest, game=game)
        if f"context_{side}" in case:
            await session.context(**case[f"context_{side}"])
        cached.append(await is_cached(session, case[side]))
    assert cached == [False, case["equal"]]


async def is_cached(session: Session, situation: dict[str, Json]) -> bool:
    """Whether this situation's decision was there before it was asked for."""
    request, place = situation["request"], situation["entity_index"]
    entity = request["entities"][place]
    if "parent_action" in situation:
        only = {"type": "leader", "observation": {}, "legal_actions": [situation["parent_action"]]}
        await session.decide({"id": entity["parent"], **only}, world=request["world"])
    body = {**request, "client_id": session.client_id}
    decision = (await session.platform.ok("/v1/decide", body))["decisions"][place]
    assert decision["source"] == "AI"
    return bool(decision.get("cached", False))
