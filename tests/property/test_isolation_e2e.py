"""No byte of one session's data reaches another: requests of many sessions at once, read at the provider, in
replies, in Redis and in the logs (A2G Security, "Session-scoped context").

Every session has a canary, a text that stands in every place where a game may put one.
"""

import asyncio
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp
import asyncpg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.decide_platform import ROUTED_GAME, DecidePlatform, Session, new_mark
from tests.raw_http import RawReply
from tests.recording_provider import Given, ModelCall, answered
from tests.waiting import eventually

Json = Any
Fault = Literal["none", "echo 400", "echo 500", "echo choice"]

CANARY = re.compile(r"canary[0-9a-f]{8}x\d+x")
ACTIONS = {"idle": "Stay", "chase": "Run after the player", "flee": "Run away"}
OWN = "own"  # where a session may have a text of its own or the one that all share


@dataclass(frozen=True, slots=True)
class Part:
    """What one session of a mix is like."""

    route: Literal["main", "joint"]  # joint: a provider that reads all questions of a request together
    cached: bool  # whether its entities' type has a decision cache
    scope: str | None  # "shared", "own" text or none
    profile: str | None
    game: str
    entities: int
    situation: bool  # whether it has sent telemetry and reports before


parts = st.builds(
    Part,
    route=st.sampled_from(["main", "main", "joint"]),
    cached=st.booleans(),
    scope=st.sampled_from([None, "shared", OWN]),
    profile=st.sampled_from([None, "shared", OWN]),
    game=st.sampled_from(["shared", "shared", OWN]),
    entities=st.integers(1, 3),
    situation=st.booleans(),
)
TYPICAL = Part("main", False, "shared", "shared", "shared", 2, True)


class Player:
    """One session of a mix and every reply that it got."""

    def __init__(self, platform: DecidePlatform, part: Part, mark: str, canary: str) -> None:
        self.part = part
        self.canary = canary
        self.replies: list[RawReply] = []
        self._platform = platform
        game = f"{canary} game" if part.game == OWN else ROUTED_GAME
        self._session = Session(platform, f"{canary}client", game, mark)
        # The routed game sends `joint` to the provider that is not isolating; other games have one route.
        self._kind = "joint" if part.route == "joint" else "bee"

    def _text(self, place: str) -> str:
        return f"{self.canary} {place}"

    @property
    def client_id(self) -> str:
        return self._session.client_id

    @property
    def decision_ids(self) -> list[str]:
        """Of every decision that it was told."""
        replies = [reply.json for reply in self.replies if b'"decisions"' in reply.body]
        return [
            one["decision_id"] for reply in replies for one in reply["decisions"] if one["source"] == "AI"
        ]

    @property
    def manifest(self) -> dict[str, Json]:
        fields = {"hp": "number", "said": "string", "around": {"list": {"who": "entity_ref"}, "max": 4}}
        kind: dict[str, Json] = {"fields": fields, "actions": ACTIONS, "events": {"hit": "It was hit"}}
        kind["perception_radius"] = 100
        if self.part.cached:
            kind["cache"] = {"key": ["hp"]}
        player = {"fields": {"said": "string"}, "actions": {}, "perception_radius": 100}
        return {
            "world": self._session.world,
            "world_fields": {"sign": "string"},
            "entity_types": {self._kind: kind, "player": player},
        }

    @property
    def entities(self) -> list[dict[str, Json]]:
        return [self._entity(number) for number in range(self.part.entities)]

    def _entity(self, number: int) -> dict[str, Json]:
        observation = {"hp": 1, "said": self._text("said"), "around": [{"who": self._text("other")}]}
        written = {
            "id": self._text(f"entity {number}"),
            "type": self._kind,
            "observation": observation,
            "legal_actions": list(ACTIONS),
            "parent": self._text("leader"),
            "trigger": "hit",
            "position": [number, 0],
        }
        return written | ({"profile": "elder"} if self.part.profile else {})

    @property
    def decide_body(self) -> dict[str, Json]:
        keys: dict[str, Json] = {"world": {"sign": self._text("sign")}}
        if self.part.scope:
            keys |= {"scope": "cave", "scope_state": {"banner": self._text("banner")}}
        return self._session.request(self.entities, **keys)

    async def post(self, path: str, body: Json, status: int = 200) -> Json:
        reply = await self._platform.post(path, body)
        self.replies.append(reply)
        assert reply.status == status, reply
        return reply.json

    async def prepare(self) -> None:
        """Open the session, give it its texts and, if it is to have one, a past."""
        client = {"client_id": self._session.client_id}
        opening = {"a2g": "0.1", **client, "game": self._session.game, "manifest": self.manifest}
        await self.post("/v1/session", opening)
        own = {part: self._text(part) for part in ("scope", "profile") if getattr(self.part, part) == OWN}
        scope = {"text": own.get("scope", "Dark caves."), "fields": {"banner": "string"}}
        profile = {"text": own.get("profile", "Old and slow.")}
        context = {"scopes": {"cave": scope}, "profiles": {"elder": profile}}
        await self.post("/v1/context", {**client, **context})
        await self._be_refused()
        if self.part.situation:
            await self._live(client)

    async def _be_refused(self) -> None:
        """Errors name what is wrong, to the session alone."""
        body = self.decide_body
        body["entities"][0]["observation"][self._text("undeclared")] = 1
        await self.post("/v1/decide", body, 400)
        body = self.decide_body
        body["entities"][0]["type"] = self._text("type")
        await self.post("/v1/decide", body, 400)

    async def _live(self, client: dict[str, str]) -> None:
        for decision in (await self.post("/v1/decide", self.decide_body))["decisions"]:
            if decision["source"] == "AI":
                report = {"entity_id": decision["id"], "decision_id": decision["decision_id"]}
                outcome = {self._text("key"): self._text("value")}
                status = {"action": decision["action"], "status": "executed", "outcome": outcome}
                await self.post("/v1/report", {**client, **report, **status})
        rows = [self._row(entity["id"], self._kind) for entity in self.entities]
        rows += [self._row(self._text("seen"), self._kind), self._row(self._text("player"), "player")]
        snapshot = {"mode": "ai", "paused": False, "scene": self._text("scene"), "scope": self._text("scope")}
        snapshot |= {"last_error": self._text("error"), "world": {self._text("world"): self._text("w")}}
        await self.post("/v1/telemetry", {**client, **snapshot, "entities": rows})

    def _row(self, entity: str, kind: str) -> dict[str, Json]:
        return {
            "id": entity,
            "type": kind,
            "name": self._text("name"),
            "state": self._text("state"),
            "fields": {"said": self._text("field"), self._text("field name"): self._text("value")},
            "decision": {"source": "AI", "action": self._text("action")},
            "position": [1, 1],
            "parent": self._text("leader"),
            "profile": self._text("profile"),
        }


def canaries(text: str) -> set[str]:
    return set(CANARY.findall(text))


def require_isolated(call: ModelCall) -> set[str]:
    """Nothing in the request is read for a session that it is not of; the sessions in it."""
    owners = {canary for question in call.questions for canary in canaries(question.entity)}
    assert canaries(call.text) <= owners
    shared = canaries(call.state_text)
    assert shared <= owners if len(owners) == 1 else shared == set(), call.state
    for question in call.questions:
        (owner,) = canaries(question.entity)
        assert canaries(json.dumps([question.instructions, question.criteria])) == {owner}
    assert [question.id for question in call.questions] == [f"q{n + 1}" for n in range(len(call.questions))]
    if call.path == "joint":
        assert len(owners) == 1
    return owners


def echoing(fault: Fault, call: ModelCall) -> Given:
    """A provider that says back what it was told, in the worst places."""
    if fault == "none":
        return Given(answered(call))
    if fault == "echo choice":
        echo = {"type": "choice", "choice": call.text, "probabilities": {call.text: 1.0}}
        return Given(answered(call, instead={question.entity: echo for question in call.questions}))
    return Given({"detail": {"error_type": call.text, "message": call.text}}, int(fault[-3:]))


async def played(
    platform: DecidePlatform, mix: Sequence[Part], fault: Fault = "none", *, log_too: bool = False
) -> list[set[str]]:
    """Let the sessions of a mix ask at the same moment; returns the sessions in each provider request.

    `log_too`: wait for the decision log, and look into it.
    """
    mark, root = new_mark(), secrets.token_hex(4)
    players = [Player(platform, part, mark, f"canary{root}x{n}x") for n, part in enumerate(mix)]
    await asyncio.gather(*(player.prepare() for player in players))
    with platform.recorder.ordered(mark, lambda call: echoing(fault, call)):
        for _ in range(2):
            await asyncio.gather(*(player.post("/v1/decide", player.decide_body) for player in players))
    for player in players:
        for reply in player.replies:
            assert canaries(json.dumps([reply.json, list(reply.headers)])) <= {player.canary}
    await require_no_keys(platform)
    await require_no_labels(platform)
    assert not canaries(platform.up.stderr())
    if log_too:
        await require_own_rows(platform, players)
    return [require_isolated(call) for call in platform.recorder.about(mark)]


async def require_no_keys(platform: DecidePlatform) -> None:
    """No canary stands in a key or channel name of Redis, nor in a value that sessions share."""
    async with platform.redis() as client:
        keys = [key async for key in client.scan_iter(count=1000)]
        names = [*keys, *await client.pubsub_shardchannels()]
        shared = [key for key in keys if re.match(rb"\{g:\w+\}:[cf]:", key)]
        values = await client.mget(shared) if shared else []
    assert not canaries(str(names))
    assert not canaries(str(values))


async def require_no_labels(platform: DecidePlatform) -> None:
    """No canary stands in a metric of any process."""
    async with aiohttp.ClientSession() as client:
        for process in platform.up.stack().processes.values():
            if process.internal is not None:
                async with client.get(f"{process.internal}/metrics") as response:
                    assert not canaries(await response.text())


async def require_own_rows(platform: DecidePlatform, players: Sequence[Player]) -> None:
    """Rows of the decision log hold nothing of another session; waits until all are there."""
    told = sum(len(player.decision_ids) for player in players)
    connection = await asyncpg.connect(platform.postgres_url)
    try:

        async def rows() -> list[Json]:
            clients = [player.client_id for player in players]
            return list(await connection.fetch("SELECT * FROM decisions WHERE client_id = ANY($1)", clients))

        async def all_there() -> bool:
            return len(await rows()) >= told

        await eventually(all_there)
        for row in await rows():
            assert canaries(str(row)) == canaries(row["client_id"])
    finally:
        await connection.close()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    mix=st.lists(parts, min_size=2, max_size=8),
    fault=st.sampled_from(["none", "none", "echo 400", "echo 500", "echo choice"]),
)
async def test_sessions_never_meet(decide_platform: DecidePlatform, mix: list[Part], fault: Fault) -> None:
    await played(decide_platform, mix, fault)


async def test_sessions_ride_together_where_questions_are_isolated(decide_platform: DecidePlatform) -> None:
    rides = await played(decide_platform, [TYPICAL] * 12, log_too=True)
    assert max(len(owners) for owners in rides) > 1


async def test_sessions_ride_alone_where_questions_are_read_jointly(decide_platform: DecidePlatform) -> None:
    alone = Part("joint", False, "shared", "shared", "shared", 2, True)
    rides = await played(decide_platform, [alone] * 12, log_too=True)
    assert {len(owners) for owners in rides} == {1}
