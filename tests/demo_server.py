"""A small A2G server for tests of a client: real HTTP, judges every message with the real protocol rules.

It answers what the test orders; by default each entity's first legal action.
"""

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from aiohttp import web

from shared.errors import InputError
from shared.protocol.compiled import CompiledContexts, CompiledManifest
from shared.protocol.contexts import Contexts
from shared.protocol.decide import DecideRequest, Entity
from shared.protocol.manifest import Manifest, parse_manifest
from shared.protocol.messages import decode_context, decode_report, decode_telemetry
from shared.protocol.session import decode_session

Answer = dict[str, Any]
Order = tuple[int, dict[str, str]]  # status and headers of a reply that replaces the next one


def first_legal(entity: Entity, number: int) -> Answer:
    return {
        "id": entity.id,
        "source": "AI",
        "action": entity.legal_actions[0],
        "label": "",
        "confidence": 0.75,
        "ttl_ms": entity.entity_type.decision_ttl_ms,
        "decision_id": f"d_{number}",
    }


def fallback(entity: Entity, _: int) -> Answer:
    return {"id": entity.id, "source": "FALLBACK", "code": "unavailable", "reason": "", "ttl_ms": 5000}


class Session:
    """What the server knows of one client."""

    def __init__(self, manifest: Manifest, contexts: Contexts) -> None:
        self.manifest = manifest
        self.contexts = contexts
        self.compiled = CompiledManifest(manifest)

    def decode(self, body: bytes) -> DecideRequest:
        return self.compiled.decode_decide(body, CompiledContexts(self.contexts, self.manifest))


class A2GServer:
    """`errors` must stay empty: what the protocol refuses. `bodies` are all messages by path, decoded."""

    def __init__(self) -> None:
        self.choose: Callable[[Entity, int], Answer] = first_legal
        self.orders: dict[str, deque[Order]] = defaultdict(deque)
        self.silent = False
        self.epoch_shift = 0
        self.errors: list[str] = []
        self.bodies: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.sessions: dict[str, Session] = {}
        self.in_flight = 0
        self.peak_in_flight = 0
        self._issued = 0
        self._arrived = asyncio.Condition()
        self._released = asyncio.Event()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/{name}", self._handle)
        return app

    async def until(self, path: str, count: int, timeout_s: float = 10.0) -> list[dict[str, Any]]:
        """Wait until `count` messages have come to `path`; returns them all."""
        async with asyncio.timeout(timeout_s), self._arrived:
            await self._arrived.wait_for(lambda: len(self.bodies[path]) >= count)
        return self.bodies[path]

    def release(self) -> None:
        """Let hanging requests go."""
        self.silent = False
        self._released.set()

    async def _handle(self, request: web.Request) -> web.Response:
        path, body = request.match_info["name"], await request.read()
        if request.content_type != "application/json":
            self.errors.append(f"{path}: content type {request.content_type}")
        async with self._arrived:
            self.bodies[path].append(json.loads(body))
            self._arrived.notify_all()
        if self.orders[path]:
            status, headers = self.orders[path].popleft()
            return web.json_response({"error": "ordered"}, status=status, headers=headers)
        try:
            return await self._answer(path, body)
        except InputError as error:
            self.errors.append(f"{path}: {error}")
            return web.json_response({"error": str(error)}, status=400)

    async def _answer(self, path: str, body: bytes) -> web.Response:
        if path == "session":
            opened = decode_session(body)
            parsed = parse_manifest(opened.manifest)
            self.errors += [f"session: {warning}" for warning in parsed.warnings]
            self.sessions[opened.client_id] = Session(parsed.manifest, parsed.contexts)
            return web.json_response({"a2g": "0.1", "ok": True, "manifest_hash": parsed.manifest.hash})
        session = self.sessions.get(json.loads(body)["client_id"])
        if session is None:
            return web.json_response({"error": "unknown session"}, status=409)
        if path == "decide":
            return await self._decide(session.decode(body))
        if path == "context":
            update = decode_context(body)
            session.contexts = session.contexts.updated(update.scopes, update.profiles, session.manifest)
            return web.json_response({"ok": True, "scopes": 0, "profiles": 0})
        if path == "telemetry":
            decode_telemetry(body, session.manifest)
        elif path == "report":
            decode_report(body)
        return web.json_response({"ok": True})

    async def _decide(self, request: DecideRequest) -> web.Response:
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        if self.silent:
            await self._released.wait()
        decisions = []
        for entity in request.entities:
            self._issued += 1
            decisions.append(self.choose(entity, self._issued))
        self.in_flight -= 1
        epoch = request.epoch + self.epoch_shift
        return web.json_response({"a2g": "0.1", "epoch": epoch, "latency_ms": 1, "decisions": decisions})
