"""An A2G client for one session over HTTP, as a game's SDK would be.

The frame loop calls `pump` and never waits: requests run as tasks of the owner's task group, and until a
reply is there the native AI plays. Faults of the network or the service never leave this module; they end as
"no decision" and a pause before the next attempt (A2G Modes and fallback, "Fallback triggers").
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
import msgspec

from deploy.demo.decisions import Asked, Book
from deploy.demo.tally import Tally
from deploy.demo.wire import A2G_VERSION, DecideReply, Report, decode_decide, decode_session, encode

MAX_IN_FLIGHT = 2
# A2G Modes and fallback, "Timing": client decide timeout.
REQUEST_TIMEOUT_S = 4.0
TELEMETRY_S = 1.0
# Questions are gathered for so long (the reference SDK's is 0.25 s), so that entities share requests.
BATCH_INTERVAL_S = 0.2
_REPORT_POLL_S = 0.05
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _MOST_DOUBLINGS = 0.25, 4.0, 4
_DEFAULT_RETRY_AFTER_S = 1.0
_MAX_TELEMETRY_ENTITIES = 128
NO_CONNECTION = 0


class Game(Protocol):
    """What the client asks of the game. All of it is synchronous and cheap."""

    def legal_actions(self, entity_id: str) -> list[str]: ...

    def links(self, entity_id: str) -> dict[str, Any]: ...

    def world_state(self) -> dict[str, Any]: ...

    def scope(self) -> tuple[str, dict[str, Any]]: ...

    def telemetry_rows(self) -> list[dict[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class _Reply:
    """`status` 0: no reply at all."""

    status: int
    body: bytes = b""
    retry_after_s: float = _DEFAULT_RETRY_AFTER_S


class A2GClient:
    """One session. `scene` is a callable because it changes with the game; `group` owns all requests."""

    def __init__(
        self,
        *,
        http: aiohttp.ClientSession,
        url: str,
        client_id: str,
        manifest: Mapping[str, Any],
        game: Game,
        book: Book,
        tally: Tally,
        group: asyncio.TaskGroup,
        scene: Callable[[], str],
        began_s: float,
    ) -> None:
        self.client_id = client_id
        self.paused = False
        self._http = http
        self._url = url.rstrip("/")
        self._manifest = dict(manifest)
        self._game = game
        self._book = book
        self._tally = tally
        self._group = group
        self._scene = scene
        self._began_s = began_s
        self._token: str | None = None
        self._open = False
        self._opening = False
        self._forbidden = False
        self._in_flight = 0
        self._next_batch_s = 0.0
        self._pause_until_s = 0.0
        self._failures = 0

    @property
    def open(self) -> bool:
        """A session exists, as far as is known."""
        return self._open

    def start(self) -> None:
        """Begin telemetry and reports; they go on until the task group is cancelled."""
        self._spawn(self._telemetry_loop())
        self._spawn(self._report_loop())

    def pump(self, now_s: float) -> None:
        """Once per frame: open the session or send what is due. Returns at once."""
        if self._forbidden or now_s < self._pause_until_s:
            return
        if not self._open:
            if not self._opening:
                self._opening = True
                self._spawn(self._open_session())
            return
        if now_s < self._next_batch_s:
            return
        self._next_batch_s = now_s + BATCH_INTERVAL_S
        while self._in_flight < MAX_IN_FLIGHT and (due := self._book.due(now_s)):
            asked = self._book.ask({id_: self._game.legal_actions(id_) for id_ in due}, now_s)
            if asked.questions:
                self._in_flight += 1
                self._spawn(self._decide(asked, self._decide_body(asked)))

    async def add_context(self, scopes: Mapping[str, Any], profiles: Mapping[str, Any]) -> bool:
        """Add scopes and profiles to the session; True when they may be used from now on.

        They join the manifest that is sent when the session must be opened again (A2G Context, "Rules").
        """
        body = {"client_id": self.client_id, "scopes": scopes, "profiles": profiles}
        reply = await self._post("/v1/context", body)
        if reply.status != 200:
            self._failed("context", reply)
            return False
        self._tally.contexts_sent += 1
        self._manifest["scopes"] = {**self._manifest.get("scopes", {}), **scopes}
        self._manifest["profiles"] = {**self._manifest.get("profiles", {}), **profiles}
        return True

    # -- requests

    async def _open_session(self) -> None:
        body = {
            "a2g": A2G_VERSION,
            "client_id": self.client_id,
            "game": "Crafter",
            "engine": "Crafter, headless",
            "manifest": self._manifest,
        }
        reply = await self._post("/v1/session", body)
        self._opening = False
        if reply.status != 200:
            self._failed("session", reply)
            self._pause(reply)
            return
        try:
            session = decode_session(reply.body)
        except msgspec.DecodeError as error:
            self._tally.fault("session: unreadable reply", str(error))
            self._pause(reply)
            return
        self._token = session.session_token
        self._open = True
        self._tally.sessions_opened += 1

    def _decide_body(self, asked: Asked) -> dict[str, Any]:
        kinds = self._book.tracks
        entities = []
        for question in asked.questions:
            entity: dict[str, Any] = {
                "id": question.entity_id,
                "type": kinds[question.entity_id].kind,
                "observation": question.observation,
                "legal_actions": question.legal,
                **self._game.links(question.entity_id),
            }
            if question.trigger is not None:
                entity["trigger"] = question.trigger
            entities.append(entity)
        scope, state = self._game.scope()
        return {
            "client_id": self.client_id,
            "epoch": asked.epoch,
            "world": asked.world,
            "scope": scope,
            "scope_state": state,
            "entities": entities,
        }

    async def _decide(self, asked: Asked, body: dict[str, Any]) -> None:
        began_s = time.monotonic()
        reply = await self._post("/v1/decide", body)
        now_s = time.monotonic()
        self._in_flight -= 1
        answer = self._read_decide(reply)
        if answer is None:
            verdicts, latency_ms = self._book.no_answer(asked, now_s), None
        else:
            verdicts = self._book.answer(asked, answer.epoch, answer.decisions, now_s)
            latency_ms = (now_s - began_s) * 1000
            self._failures = 0
        self._tally.answered(verdicts, latency_ms, now_s - self._began_s)

    def _read_decide(self, reply: _Reply) -> DecideReply | None:
        if reply.status != 200:
            self._failed("decide", reply)
            self._pause(reply)
            return None
        try:
            return decode_decide(reply.body)
        except msgspec.DecodeError as error:
            self._tally.fault("decide: unreadable reply", str(error))
            return None

    async def _telemetry_loop(self) -> None:
        while True:
            if self._open:
                reply = await self._post("/v1/telemetry", self._telemetry_body())
                if reply.status != 200:
                    self._failed("telemetry", reply)
            await asyncio.sleep(TELEMETRY_S)

    def _telemetry_body(self) -> dict[str, Any]:
        # Between two islands there is nobody to report; the scene stays the old one until the new begins.
        rows = [] if self.paused else self._game.telemetry_rows()[:_MAX_TELEMETRY_ENTITIES]
        for row in rows:
            track = self._book.tracks.get(row["id"])
            row["pending"] = track.pending if track is not None else False
            if track is None:
                continue
            decision = track.decision
            row["decision"] = {"source": "AI" if decision else "FALLBACK"}
            if decision is not None:
                row["decision"]["action"] = decision.action
                if decision.confidence is not None:
                    row["decision"]["confidence"] = round(decision.confidence, 2)
        return {
            "client_id": self.client_id,
            "mode": "ai",
            "paused": self.paused,
            "scene": self._scene(),
            "scope": self._game.scope()[0],
            "last_error": "",
            "world": self._game.world_state(),
            "entities": rows,
        }

    async def _report_loop(self) -> None:
        while True:
            if self._open and self._book.reports:
                await asyncio.sleep(await self._send_report(self._book.reports.popleft()))
            else:
                await asyncio.sleep(_REPORT_POLL_S)

    async def _send_report(self, report: Report) -> float:
        """Send one, which is lost when it fails; returns the seconds to wait before the next."""
        self._tally.endings[report.status] += 1
        body = {"client_id": self.client_id, **msgspec.structs.asdict(report)}
        reply = await self._post("/v1/report", body)
        if reply.status == 200:
            return 0.0
        self._failed("report", reply)
        return reply.retry_after_s

    async def _post(self, path: str, message: dict[str, Any]) -> _Reply:
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            async with self._http.post(
                self._url + path,
                data=encode(message),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S),
            ) as response:
                body = await response.read()
                return _Reply(response.status, body, _retry_after_s(response.headers.get("Retry-After")))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return _Reply(NO_CONNECTION, f"{type(error).__name__}: {error}".encode())

    def _failed(self, what: str, reply: _Reply) -> None:
        """Count it, and what the status says about the session (A2G Security, "Errors")."""
        self._tally.fault(f"{what}: {reply.status or 'no reply'}", reply.body[:200].decode(errors="replace"))
        if reply.status == 403:
            self._forbidden = True
        elif reply.status in (401, 409):
            self._open = False
            self._token = None

    def _pause(self, reply: _Reply) -> None:
        """Wait before the next question, longer each time; what failed meanwhile counts as one failure."""
        now_s = time.monotonic()
        if now_s < self._pause_until_s:
            return
        self._failures += 1
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(self._failures - 1, _MOST_DOUBLINGS))
        self._pause_until_s = now_s + (reply.retry_after_s if reply.status == 429 else pause_s)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._group.create_task(work)


def _retry_after_s(header: str | None) -> float:
    """Seconds from a Retry-After header; a date or nonsense gives one second."""
    if header is None or not header.isascii() or not header.isdigit():
        return _DEFAULT_RETRY_AFTER_S
    return min(60.0, float(header))
