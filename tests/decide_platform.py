"""A platform for the tests of the wire: two gateways, two workers, a provider that records what it is asked.

`decide_platform` is shared by a whole run; each test has game, session and manifest names of its own, and
leaves the platform working.
"""

import itertools
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tests.fault_platform import Platform
from tests.raw_http import RawReply, port_of, post, require_rules
from tests.recording_provider import ModelCall, RecordingProvider
from tests.stack import Up, ups

Json = Any

DECIDE_TIMEOUT_S = 3.5  # the default, A2G-Timeout-Ms unsent
ROUTED_GAME = "Routed"  # whose entity types go by their names to the routes below
ROUTES = ("joint", "small", "hasty", "keyless", "denied")
LINGER_MS = 25  # long enough for requests sent at the same moment to ride together
WRONG_KEY = "MUSTER_TEST_WRONG_KEY"


def config_for(provider_url: str) -> dict[str, Json]:
    """Every provider is the recording one, under a name of its own."""

    def entry(name: str, **options: Json) -> dict[str, Json]:
        return {
            "kind": "systemone",
            "base_url": f"{provider_url}/{name}",
            "model": f"{name}-1",
            "isolates_questions": True,
            "price_per_mtok_usd": 0.042,
            **options,
        }

    return {
        "providers": {
            "main": entry("main"),
            "joint": entry("joint", isolates_questions=False),
            "small": entry("small", max_questions=3),
            "hasty": entry("hasty", timeout_ms=100),
            "keyless": entry("keyless", key_env="MUSTER_TEST_KEY_THAT_IS_NOT_SET"),
            "denied": entry("denied", key_env=WRONG_KEY),
        },
        "routing": {"default": ["main"], **{name: [name] for name in ROUTES}},
        "games": {ROUTED_GAME: {"routes": {name: name for name in ROUTES}}},
        "linger_ms": LINGER_MS,
    }


class DecidePlatform(Platform):
    """The platform and its provider."""

    def __init__(self, up: Up, recorder: RecordingProvider) -> None:
        super().__init__(up)
        self.recorder = recorder

    @property
    def port(self) -> int:
        return port_of(self.url)

    async def post(self, path: str, body: Json, timeout_ms: int | str | None = None) -> RawReply:
        """One request on a connection of its own, which either gateway may take; the rules are checked."""
        headers = [] if timeout_ms is None else [("A2G-Timeout-Ms", str(timeout_ms))]
        reply = await post(self.port, path, body, headers)
        require_rules(reply)
        return reply

    async def ok(self, path: str, body: Json, timeout_ms: int | None = None) -> dict[str, Json]:
        """The same; the reply must be 200."""
        reply = await self.post(path, body, timeout_ms)
        assert reply.status == 200, reply
        return dict(reply.json)

    async def opened(
        self, manifest: Mapping[str, Json], game: str = "Wire", client_id: str | None = None
    ) -> "Session":
        """A session with this manifest."""
        client_id = client_id or f"client-{secrets.token_hex(6)}"
        session = Session(self, client_id, game, str(manifest.get("world", "")))
        await session.open(manifest)
        return session


class Session:
    """One game process as a test plays it. Decisions are read by entity."""

    _epochs = itertools.count(1)

    def __init__(self, platform: DecidePlatform, client_id: str, game: str, world: str) -> None:
        self.platform = platform
        self.client_id = client_id
        self.game = game
        self.world = world  # the manifest's text, by which the provider's requests are found

    async def open(self, manifest: Mapping[str, Json]) -> dict[str, Json]:
        body = {"a2g": "0.1", "client_id": self.client_id, "game": self.game, "manifest": manifest}
        return await self.platform.ok("/v1/session", body)

    def request(self, entities: Sequence[Mapping[str, Json]], **keys: Json) -> dict[str, Json]:
        """The body of a decide request."""
        epoch = next(self._epochs)
        return {"client_id": self.client_id, "epoch": epoch, "world": {}, "entities": entities, **keys}

    async def decide(
        self, *entities: Mapping[str, Json], timeout_ms: int | None = None, **keys: Json
    ) -> dict[str, dict[str, Json]]:
        """Ask for these entities; the reply's decisions, in their order, by entity."""
        request = self.request(entities, **keys)
        reply = await self.platform.ok("/v1/decide", request, timeout_ms)
        assert reply["a2g"] == "0.1"
        assert reply["epoch"] == request["epoch"]
        decisions = {str(decision["id"]): decision for decision in reply["decisions"]}
        assert [d["id"] for d in reply["decisions"]] == [entity["id"] for entity in entities]
        return decisions

    async def telemetry(self, *entities: Mapping[str, Json], scene: str = "L1", **keys: Json) -> None:
        body = {"client_id": self.client_id, "mode": "ai", "paused": False, "scene": scene, **keys}
        await self.platform.ok("/v1/telemetry", {**body, "entities": entities})

    async def context(self, **tables: Json) -> dict[str, Json]:
        return await self.platform.ok("/v1/context", {"client_id": self.client_id, **tables})

    async def report(self, decision: Mapping[str, Json], **changes: Json) -> RawReply:
        """Report a decision as executed, with `changes` to the body."""
        body = {
            "client_id": self.client_id,
            "entity_id": decision["id"],
            "decision_id": decision["decision_id"],
            "action": decision["action"],
            "status": "executed",
            "outcome": {},
        }
        return await self.platform.post("/v1/report", {**body, **changes})

    def calls(self) -> list[ModelCall]:
        """What the provider was asked by sessions with this world text."""
        return self.platform.recorder.about(self.world)


def new_mark() -> str:
    """A text that occurs nowhere else."""
    return f"mark{secrets.token_hex(8)}"


def game_of(types: Mapping[str, Json], **keys: Json) -> dict[str, Json]:
    """A manifest with these entity types and a world text that occurs nowhere else."""
    return {"world": new_mark(), "entity_types": types, **keys}


@pytest.fixture(scope="session")
def decide_platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DecidePlatform]:
    """The shared platform."""
    recorder = RecordingProvider()
    try:
        config = tmp_path_factory.mktemp("config") / "config.json"
        config.write_text(json.dumps(config_for(recorder.url)))
        options = ("--gateways", "2", "--workers", "2", "--config", str(config))
        with ups() as start:
            up = start(*options, env={WRONG_KEY: "wrong", "MUSTER_LOG_LEVEL": "debug"})
            yield DecidePlatform(up.ready(), recorder)
    finally:
        recorder.close()
