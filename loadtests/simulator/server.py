"""The simulator's HTTP side: routes, keys, faults, control. aiohttp around the pure wire formats."""

import asyncio
import hmac
from typing import Annotated

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import Meta

from loadtests.simulator.decisions import Decisions
from loadtests.simulator.faults import Dice, Faults, Quota, spoilt
from loadtests.simulator.stats import Stats
from loadtests.simulator.systemone import SystemOne
from loadtests.simulator.wire import MODEL, Answered, Wire, WireError

MAX_BODY_BYTES = 16 * 1024 * 1024  # 64k tokens are far less; a larger body is a mistake
SERVER = "muster-simulator"
_JSON = "application/json"


class _Control(msgspec.Struct, forbid_unknown_fields=True):
    """A change: the faults named, an outage from now on, a fresh count."""

    faults: msgspec.Raw = msgspec.Raw(b"{}")
    outage_s: Annotated[float, Meta(ge=0)] | None = None  # 0 ends one
    reset_stats: bool = False


class Simulator:
    """One provider: its faults, quotas and counters. `clock` is the event loop's, in seconds."""

    def __init__(
        self, faults: Faults, *, seed: int = 0, key: str = "", outage: tuple[float, float] = (0, 0)
    ) -> None:
        self.faults = faults
        self.stats = Stats()
        self._dice = Dice(seed)
        self._key = key.encode()
        self._requests = Quota()
        self._tokens = Quota()
        self._outage = outage  # start and length in seconds, counted from `app` being started
        self._started_s = 0.0

    def app(self) -> web.Application:
        """The application to serve."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_as_json])
        app.on_startup.append(self._start)
        app.on_response_prepare.append(_name_server)
        app.router.add_post("/v1/systemone", self._route(SystemOne()))
        app.router.add_post("/v1/decisions", self._route(Decisions()))
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_get("/stats", self._show_stats)
        app.router.add_post("/control", self._control)
        return app

    async def _start(self, _app: web.Application) -> None:
        self._started_s = asyncio.get_running_loop().time()

    def _route(self, wire: Wire) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            body = await request.read()
            self.stats.requests += 1
            try:
                return await self._handle(request, wire, body)
            except WireError as exc:
                return self._reply(exc.status, exc.body)

        return handle

    async def _handle(self, request: web.Request, wire: Wire, body: bytes) -> web.Response:
        faults = self.faults
        now_s = asyncio.get_running_loop().time()
        if self._is_out(now_s) or self._dice.falls(faults.drop_rate):
            return self._drop(request)
        refused = self._refused_key(request, wire)
        if refused is not None:
            return refused
        if faults.concurrency and self.stats.in_flight >= faults.concurrency:
            return self._reply(529, wire.failure(529, "overloaded: too many requests at once"))
        status = self._dice.status(faults.error_rates)
        if status is not None:
            return self._reply(status, wire.failure(status, f"simulated fault {status}"))
        answered = wire.answer(body)
        wait_s = self._quota_wait_s(answered, now_s)
        if wait_s > 0:
            return self._reply(429, wire.failure(429, "rate limit reached"), wait_s)
        self.stats.enter()
        try:
            delay_ms = self._dice.delay_ms(faults)
            if delay_ms > 0:
                await asyncio.sleep(delay_ms / 1_000)
        finally:
            self.stats.leave()
        if delay_ms > 0 and self._is_out(asyncio.get_running_loop().time()):
            return self._drop(request)
        return self._answer(request, wire, answered)

    def _answer(self, request: web.Request, wire: Wire, answered: Answered) -> web.Response:
        stats, faults = self.stats, self.faults
        questions = len(answered.answers)
        missing = self._dice.missing(faults.missing_rate, questions)
        reply = wire.encode(answered, missing)
        if self._dice.falls(faults.malformed_rate):
            reply = spoilt(reply, self._dice.malformation())
            stats.malformed += 1
        stats.questions += questions
        stats.tokens += answered.input_tokens
        stats.missing += len(missing)
        stats.largest_batch = max(stats.largest_batch, questions)
        if request.transport is None or request.transport.is_closing():
            stats.abandoned += 1
        return self._reply(200, reply)

    def _is_out(self, now_s: float) -> bool:
        start_s, length_s = self._outage
        return 0 <= now_s - self._started_s - start_s < length_s

    def _quota_wait_s(self, answered: Answered, now_s: float) -> float:
        wait_s = self._requests.take(1, self.faults.requests_per_s, now_s)
        return wait_s or self._tokens.take(answered.input_tokens, self.faults.tokens_per_s, now_s)

    def _refused_key(self, request: web.Request, wire: Wire) -> web.Response | None:
        if not self._key:
            return None
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            return self._reply(403, wire.failure(403, "Must supply an API key"))
        if not hmac.compare_digest(given.encode(errors="surrogateescape"), self._key):
            return self._reply(401, wire.failure(401, "Cannot authenticate with this key"))
        return None

    def _drop(self, request: web.Request) -> web.Response:
        self.stats.dropped += 1
        if request.transport is not None:
            request.transport.abort()
        return web.Response()  # goes nowhere

    def _reply(self, status: int, body: bytes, retry_after_s: float = 0.0) -> web.Response:
        self.stats.count_status(status)
        headers = None
        if retry_after_s > 0:
            headers = {
                "retry-after": str(-int(-retry_after_s // 1)),  # whole seconds, rounded up
                "retry-after-ms": str(-int(-retry_after_s * 1_000 // 1)),
            }
        return web.Response(status=status, body=body, content_type=_JSON, headers=headers)

    async def _models(self, request: web.Request) -> web.Response:
        refused = self._refused_key(request, SystemOne())
        if refused is not None:
            return refused
        model = {"name": MODEL, "description": "provider simulator, no model", "release_date": "2026-10-01"}
        return _json({"models": [model, model | {"name": "jev-latest"}]})

    async def _health(self, _request: web.Request) -> web.Response:
        return _json({"ok": True, "server": SERVER})

    async def _show_stats(self, _request: web.Request) -> web.Response:
        return _json(self.stats)

    async def _control(self, request: web.Request) -> web.Response:
        # A page in somebody's browser cannot send this type without asking first.
        if request.content_type != _JSON:
            return _json({"error": "content type must be application/json"}, 415)
        try:
            change = msgspec.json.decode(await request.read(), type=_Control)
            named = msgspec.json.decode(change.faults, type=dict[str, object])
            kept = {key: value for key, value in msgspec.to_builtins(self.faults).items() if key not in named}
            self.faults = msgspec.convert(kept | named, Faults, strict=False)
        except (msgspec.MsgspecError, RecursionError) as exc:
            return _json({"error": str(exc)}, 400)
        if change.outage_s is not None:
            now_s = asyncio.get_running_loop().time()
            self._outage = (now_s - self._started_s, change.outage_s)
        if change.reset_stats:
            self.stats.reset()
        return _json({"faults": self.faults})


def _json(value: object, status: int = 200) -> web.Response:
    # Status keys are numbers in `faults`; in JSON they are strings.
    return web.Response(status=status, body=msgspec.json.encode(value), content_type=_JSON)


async def _name_server(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["server"] = SERVER


@web.middleware
async def _as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """aiohttp's own errors (no such route, body too large) in TypeSafe's shape."""
    try:
        return await handler(request)
    except web.HTTPException as exc:
        kind = "not_found" if exc.status == 404 else "invalid_request_error"
        detail = {"error_type": kind, "message": f"{exc.status} {exc.reason}"}
        return _json({"detail": detail}, exc.status)
