"""The one place that does HTTP with providers: kept-alive connections, bounded time and size."""

import asyncio
import ssl
from types import SimpleNamespace

import aiohttp
import msgspec

from workers.providers.base import HttpCall
from workers.providers.credentials import ProviderKey
from workers.providers.errors import (
    ProviderError,
    ProviderMalformedError,
    ProviderTimeoutError,
    ProviderUnreachableError,
)

MAX_REPLY_BYTES = 1_048_576  # 800 answers of 255 options with short names fit
KEEPALIVE_S = 15.0  # below the idle limits of common load balancers (60 s) and servers


class HttpReply(msgspec.Struct, frozen=True):
    """What came back; header names are lower-case, of a repeated one the first counts."""

    status: int
    headers: dict[str, str]
    body: bytes


class ProviderTransport:
    """One pool of connections for all providers of a worker. Make it inside the running loop; close it."""

    def __init__(self, *, max_reply_bytes: int = MAX_REPLY_BYTES, tls: ssl.SSLContext | bool = True) -> None:
        sent = aiohttp.TraceConfig()
        sent.on_request_headers_sent.append(_mark_sent)
        self._max_reply_bytes = max_reply_bytes
        self._session = aiohttp.ClientSession(
            # The callers bound how many calls are in flight; a limit here would be a second, hidden queue.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S, ssl=tls),
            cookie_jar=aiohttp.DummyCookieJar(),  # one provider account must not see another's
            timeout=aiohttp.ClientTimeout(total=None, connect=None),  # `send` has its own, exact to the ms
            trace_configs=[sent],
            trust_env=False,
            # A compressed reply could not be bounded before it is unpacked.
            auto_decompress=False,
            headers={"accept": "application/json", "accept-encoding": "identity", "user-agent": "muster"},
        )

    async def send(
        self, base_url: str, call: HttpCall, key: ProviderKey | None, timeout_ms: int
    ) -> HttpReply:
        """POST `call` below `base_url` and read the whole reply within `timeout_ms` milliseconds.

        Raises ProviderTimeoutError, ProviderUnreachableError or ProviderMalformedError (a reply that is too
        large, compressed or no HTTP), each saying whether the request had been sent and so may be billed.
        """
        if timeout_ms <= 0:
            raise ProviderTimeoutError("no time left")
        progress = SimpleNamespace(sent=False)
        error: ProviderError
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return await self._exchange(base_url, call, key, progress)
        except TimeoutError:
            error = ProviderTimeoutError(f"no reply within {timeout_ms} ms", billed=progress.sent)
        except aiohttp.ClientResponseError:
            error = ProviderMalformedError("the reply is not HTTP", billed=True)
        except (aiohttp.ClientError, OSError) as exc:
            error = ProviderUnreachableError(_cause(exc), billed=progress.sent)
        # Raised out here so that aiohttp's exception, which holds the request's headers and with them the
        # key, is not chained to ours.
        raise error

    async def _exchange(
        self, base_url: str, call: HttpCall, key: ProviderKey | None, progress: SimpleNamespace
    ) -> HttpReply:
        headers = call.headers if key is None else call.headers | {"authorization": f"Bearer {key.reveal()}"}
        async with self._session.post(
            base_url.rstrip("/") + call.path,
            data=call.body,
            headers=headers,
            allow_redirects=False,  # the key and the players' data go where the operator said, nowhere else
            trace_request_ctx=progress,
        ) as response:
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                response.close()
                raise ProviderMalformedError("the reply is compressed, which was not asked for", billed=True)
            body = await self._body(response)
            fields: dict[str, str] = {}
            for name, value in response.headers.items():
                fields.setdefault(name.lower(), value)
            return HttpReply(response.status, fields, body)

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in response.content.iter_any():
            size += len(part)
            if size > self._max_reply_bytes:
                response.close()  # the rest is not read, so the connection cannot be used again
                raise ProviderMalformedError(f"the reply is over {self._max_reply_bytes} bytes", billed=True)
            parts.append(part)
        return b"".join(parts)

    async def close(self) -> None:
        """Close every connection; calls in flight fail."""
        await self._session.close()


async def _mark_sent(
    _session: aiohttp.ClientSession, context: SimpleNamespace, _params: aiohttp.TraceRequestHeadersSentParams
) -> None:
    context.trace_request_ctx.sent = True


def _cause(exc: Exception) -> str:
    """A fixed phrase per cause: the exceptions' own texts hold addresses and more."""
    if isinstance(exc, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return "no trusted TLS connection"
    if isinstance(exc, aiohttp.ClientConnectorError):
        return "no connection"
    return "the connection broke"
