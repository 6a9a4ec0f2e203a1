"""The HTTP edge: aiohttp's low-level server, request checks, size and time limits, errors as JSON.

Use cases know nothing of HTTP: each is `async (Call) -> Reply`, so this layer stays replaceable.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from aiohttp import HttpVersion, HttpVersion10, HttpVersion11, StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.web_protocol import RequestHandler, _ErrInfo
from multidict import CIMultiDict
from prometheus_client import Counter

from gateway import checks
from gateway.reply import UNAVAILABLE, Reply, error_reply
from shared import metric_defs
from shared.clock import Clock
from shared.errors import InputError, StoreUnavailableError
from shared.metrics import Metrics

MAX_BODY_BYTES = 256 * 1024  # A2G Overview, "Transport"
BODY_TIMEOUT_S = 10.0  # a body that has not arrived by then is not a game's
KEEPALIVE_S = 75.0
LINGER_S = 2.0  # how long a body that is refused is still taken in, so that its sender hears why
DRAIN_POLL_S = 0.05
_UNREAD = (408, 413)  # replies to a body that is not read to its end: nothing can follow it

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """One request as a use case sees it."""

    body: bytes
    token: str | None  # the bearer credential, None when there is none
    timeout_ms: int | None  # the caller's A2G-Timeout-Ms, clamped
    received_ms: int


UseCase = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Route:
    """One endpoint: its method, path and use case."""

    method: str
    path: str
    use_case: UseCase


class Edge:
    """Serves `routes`; one per listening socket."""

    def __init__(
        self, routes: Mapping[tuple[str, str], Route], clock: Clock, port: int, metrics: Metrics
    ) -> None:
        self._routes = routes
        self._methods = {path: [m for m, p in routes if p == path] for _, path in routes}
        self._clock = clock
        self._port = port
        self._metrics = metrics
        self._counts: dict[tuple[str, int], Counter] = {}
        self._draining = False
        self._in_flight = 0
        self.server = _JsonServer(
            self._handle,
            keepalive_timeout=KEEPALIVE_S,
            access_log=None,
            lingering_time=LINGER_S,
            auto_decompress=False,  # `_admitted` refuses compressed bodies
        )

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self._in_flight += 1
        try:
            reply = await self._answer(request)
        finally:
            self._in_flight -= 1
        self._count(request.path, reply.status)
        response = _response(reply)
        if self._draining or reply.status in _UNREAD:
            response.force_close()
        return response

    def _count(self, path: str, status: int) -> None:
        known = path if path in self._methods else "other"
        counter = self._counts.get((known, status))
        if counter is None:
            counter = self._counts[known, status] = self._metrics.counter(
                metric_defs.REQUESTS, known, str(status)
            )
        counter.inc()

    async def _answer(self, request: web.BaseRequest) -> Reply:
        received_ms = self._clock.now_ms()
        try:
            route = self._admitted(request)
            if isinstance(route, Reply):
                return route
            body = await _read_body(request) if request.method == "POST" else b""
            headers = request.headers
            call = Call(
                body=body,
                token=_bearer(headers.get("Authorization", "")),
                timeout_ms=checks.timeout_ms(headers.getall("A2G-Timeout-Ms", ())),
                received_ms=received_ms,
            )
            return await route.use_case(call)
        except _BodyTooLargeError:
            return error_reply(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
        except TimeoutError:
            return error_reply(408, "the body did not arrive in time")
        except InputError as error:
            return error_reply(400, str(error))
        except StoreUnavailableError:
            return UNAVAILABLE
        except (web.RequestPayloadError, ConnectionError):
            return error_reply(400, "the body cannot be read", Connection="close")
        except Exception:  # noqa: BLE001 -- the edge: the game gets JSON whatever it is, the operator the trace
            _log.exception("request failed", path=request.path, method=request.method)
            return error_reply(500, "internal error")

    def _admitted(self, request: web.BaseRequest) -> Route | Reply:
        headers = request.headers
        if isinstance(request, _Request) and not request.is_spoken:
            return error_reply(400, "HTTP/1.1 is spoken here", Connection="close")
        if not checks.host_allowed(checks.hosts_asked(request.raw_path, headers.getall("Host", ()))):
            return error_reply(403, "this Host is not served")
        if not checks.origin_allowed(headers.getall("Origin", ()), self._port):
            return error_reply(403, "requests from this Origin are refused")
        route = self._routes.get((request.method, request.path))
        if route is None:
            methods = self._methods.get(request.path)
            if methods is None:
                return error_reply(404, "no such endpoint")
            return error_reply(405, "this endpoint takes " + ", ".join(methods), Allow=", ".join(methods))
        if request.method == "POST" and not checks.is_json(headers.getall("Content-Type", ())):
            return error_reply(415, "Content-Type must be application/json")
        if request.method == "POST" and not checks.is_plain(headers.getall("Content-Encoding", ())):
            return error_reply(415, "the body must not be compressed")
        return route

    async def drain(self, idle_s: float, answer_s: float) -> None:
        """Answer open connections with `Connection: close`, until none is left.

        One that asks nothing is closed after `idle_s`; requests in flight then have `answer_s` to finish.
        """
        self._draining = True
        await self._until_unused(idle_s)
        self.server.close_idle()
        await self._until_unused(answer_s)

    async def _until_unused(self, seconds: float) -> None:
        until = asyncio.get_running_loop().time() + seconds
        while self._in_flight or self.server.connections:
            if asyncio.get_running_loop().time() >= until:
                return
            await asyncio.sleep(DRAIN_POLL_S)

    async def close(self) -> None:
        """Close every connection; handlers get a second to finish."""
        await self.server.shutdown(1.0)


class _BodyTooLargeError(Exception):
    """The body passes MAX_BODY_BYTES."""


async def _read_body(request: web.BaseRequest) -> bytes:
    length = request.content_length
    if length is not None and length > MAX_BODY_BYTES:
        raise _BodyTooLargeError
    content = request.content
    if content.is_eof() and content.total_bytes <= MAX_BODY_BYTES:
        return content.read_nowait()
    if request.version >= HttpVersion11 and checks.expects_continue(request.headers.getall("Expect", ())):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    chunks: list[bytes] = []
    size = 0
    async with asyncio.timeout(BODY_TIMEOUT_S):
        while chunk := await content.readany():
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise _BodyTooLargeError
            chunks.append(chunk)
    return b"".join(chunks)


def _bearer(header: str) -> str | None:
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token else None


def _response(reply: Reply) -> web.Response:
    headers: CIMultiDict[str] = CIMultiDict(reply.headers)
    headers["Content-Type"] = "application/json"
    headers["Server"] = "muster"
    return web.Response(body=reply.body, status=reply.status, headers=headers)


class _Request(web.BaseRequest):
    """aiohttp's request; a version that is not spoken here is answered in one that is."""

    @property
    def is_spoken(self) -> bool:
        """Whether the request is HTTP/1.0 or HTTP/1.1."""
        return self._version in (HttpVersion10, HttpVersion11)

    @property
    def version(self) -> HttpVersion:
        """The version to answer in."""
        return self._version if self.is_spoken else HttpVersion11


class _JsonHandler(RequestHandler):
    """aiohttp's connection handler, with its own errors (a request that is no HTTP) as JSON too."""

    __slots__ = ("_body",)

    def __init__(self, manager: web.Server, **options: Any) -> None:
        super().__init__(manager, **options)
        self._body: StreamReader | None = None  # of the latest request

    def close_if_idle(self) -> None:
        """Close the connection unless a request is in progress on it."""
        if not self._request_in_progress:
            self.force_close()

    def data_received(self, data: bytes) -> None:
        """Take in what came; a body whose framing breaks half-way fails at once.

        aiohttp queues the fault behind the request, whose handler would wait for the rest until it times out.
        """
        super().data_received(data)
        if self._messages:
            message, body = self._messages[-1]
            if isinstance(message, _ErrInfo):
                self._fail_body()
            else:
                self._body = body

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio's protocols return it
        """Whether the connection stays: a sender that has said all may still listen to the reply."""
        idle = self._waiter is not None and not self._waiter.done()
        if self._body is None or idle:
            return False
        self._fail_body()
        self.close()  # once that reply is out
        return True

    def _fail_body(self) -> None:
        if self._body is not None and not self._body.is_eof():
            self._body.set_exception(web.RequestPayloadError("broken off"))

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("part of a response is out already")
        if status >= 500:
            _log.error("connection failed", exc_info=exc)
        response = _response(
            error_reply(status, "malformed HTTP request" if status < 500 else "internal error")
        )
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        """Log a failure that is ours; a body whose framing its sender broke is not."""
        if not isinstance(kwargs.get("exc_info"), web.RequestPayloadError):
            super().log_exception(*args, **kwargs)


class _JsonServer(web.Server):
    """aiohttp's server with `_JsonHandler` connections."""

    def __call__(self) -> RequestHandler:
        return _JsonHandler(self, loop=self._loop, **self._kwargs)

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        return _Request(message, payload, protocol, writer, task, self._loop)

    def close_idle(self) -> None:
        """Close the connections that nothing is asked on."""
        for connection in self.connections:
            if isinstance(connection, _JsonHandler):
                connection.close_if_idle()
