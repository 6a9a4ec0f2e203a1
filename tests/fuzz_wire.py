"""Requests as bytes, for fuzzing below JSON: methods, targets, headers, framing, cuts and plain nonsense."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.raw_http import request_bytes

Fields = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Wire:
    """What goes out on one connection. `whole`: every request in it is complete, so that each has a reply;
    otherwise the sender ends after it, and may be left without one."""

    data: bytes
    method: str = "POST"
    whole: bool = True
    requests: int = 1


def fields_for(port: int) -> Fields:
    return [("Host", f"127.0.0.1:{port}"), ("Content-Type", "application/json")]


_METHODS = [
    "GET",
    "PUT",
    "DELETE",
    "PATCH",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "BREW",
    "post",
    "P@ST",
    "",
    "A" * 9000,
]
_TARGETS = [
    "/", "*", "//", "/v1", "/v1/", "/v1/decide/", "/v1/decide?x=1", "/v1/decide#x", "/V1/DECIDE",
    "/v1//decide", "/v1/../v1/decide", "/v1/%64ecide", "/%2e%2e/etc/passwd", "/%zz", "/%00", "/health",
    "/health/..", "/v1/decide%0d%0aX: y", "v1/decide", "http://evil.example/v1/decide",
    "http://127.0.0.1/v1/decide", "https://127.0.0.1/health", "ftp://x/", "http://", "http://[::1/",
    "http://a:b@127.0.0.1/health", "/" + "a" * 9000, "/metrics", "/readyz", "/\x7f", "/\xe9",
]  # fmt: skip
_VALUES = [
    "", " ", "x", "0", "-1", "1e3", "9" * 30, "application/json", "text/plain", "chunked", "gzip",
    "identity", "100-continue", "close", "keep-alive", "upgrade", "Bearer x", "Bearer " + "x" * 5000,
    "127.0.0.1", "evil.example", "null", "a, b", "\x7f", "\xff", "a\tb", "\x00", "a\r\n b", "bytes=0-1",
    "W/\"x\"", "50", "50.0", "x" * 9000,
]  # fmt: skip
_NAMES = [
    "Host", "Origin", "Content-Type", "Content-Type", "Content-Type", "Content-Encoding", "Content-Length",
    "Content-Encoding", "Transfer-Encoding", "Expect", "Connection", "Upgrade", "Authorization",
    "A2G-Timeout-Ms", "Cookie", "Accept-Encoding", "Range", "If-None-Match", "TE", "Trailer",
    "X-Forwarded-For", "X-Forwarded-Proto", "Sec-WebSocket-Key", "HTTP2-Settings", "Keep-Alive", "X" * 9000,
    "", "a b", "é",
]  # fmt: skip


def odd_method(chance: Random, path: str, body: bytes, port: int) -> Wire:
    method = chance.choice(_METHODS)
    return Wire(request_bytes(method, path, fields_for(port), body), method)


def odd_target(chance: Random, _path: str, body: bytes, port: int) -> Wire:
    method = chance.choice(["POST", "GET", "OPTIONS"])
    return Wire(request_bytes(method, chance.choice(_TARGETS), fields_for(port), body), method)


def odd_header(chance: Random, path: str, body: bytes, port: int) -> Wire:
    """One to three headers replaced, added or taken away."""
    fields = fields_for(port)
    for _ in range(chance.choice([1, 1, 2, 3])):
        name, value = chance.choice(_NAMES), chance.choice(_VALUES)
        match chance.randrange(3):
            case 0 if fields:
                place = chance.randrange(len(fields))
                fields[place] = (fields[place][0], value)
            case 1:
                fields.insert(chance.randint(0, len(fields)), (name, value))
            case _ if fields:
                fields.pop(chance.randrange(len(fields)))
    # A length or coding of its own may promise more than there is.
    return Wire(request_bytes("POST", path, fields, body), whole=False)


def flood(chance: Random, path: str, body: bytes, port: int) -> Wire:
    count, size = chance.choice([(100, 10), (127, 60), (1000, 10), (20_000, 5), (5, 8000), (1, 70_000)])
    fields = [(f"X-{n}", "y" * size) for n in range(count)]
    return Wire(request_bytes("POST", path, [*fields_for(port), *fields], body), whole=False)


def chunked(chance: Random, path: str, body: bytes, port: int) -> Wire:
    head = request_bytes("POST", path, fields_for(port), chunked=True).removesuffix(b"0\r\n\r\n")
    parts = []
    rest = body
    while rest:
        size = chance.choice([1, 7, 100, 5000, len(rest)])
        extension = chance.choice([b"", b"", b";a=b", b';a="\x00"'])
        parts.append(b"%x%s\r\n%s\r\n" % (len(rest[:size]), extension, rest[:size]))
        rest = rest[size:]
    end = chance.choice([b"0\r\n\r\n", b"0\r\nX-Trailer: y\r\n\r\n", b"00000\r\n\r\n"])
    return Wire(head + b"".join(parts[:2000]) + end)


def broken_chunks(chance: Random, path: str, body: bytes, port: int) -> Wire:
    head = request_bytes("POST", path, fields_for(port), chunked=True).removesuffix(b"0\r\n\r\n")
    broken = chance.choice(
        [
            b"zz\r\n",
            b"-1\r\n",
            b"5\r\nabc\r\n",
            b"ffffffffffffffff\r\n",
            b"3\nabc\n0\n\n",
            b"3\r\nabcd\r\n0\r\n\r\n",
            b"",
            b"5\r\n",
        ]
    )
    good = b"%x\r\n%s\r\n" % (len(body), body) if body and chance.random() < 0.5 else b""
    return Wire(head + good + broken, whole=False)


def wrong_length(chance: Random, path: str, body: bytes, port: int) -> Wire:
    length = chance.choice(
        [
            len(body) + 1,
            len(body) + 1000,
            max(0, len(body) - 1),
            0,
            -1,
            10**9,
            10**30,
            "",
            "x",
            "1,1",
            f"+{len(body)}",
            "0x10",
        ]
    )
    head = request_bytes("POST", path, [*fields_for(port), ("Content-Length", str(length))])
    return Wire(head.replace(b"Content-Length: 0\r\n\r\n", b"\r\n") + body, whole=False)


def two_framings(chance: Random, path: str, body: bytes, port: int) -> Wire:
    """Two lengths, or a length and a coding: what smuggles requests past a proxy."""
    extra = chance.choice(
        [("Content-Length", str(len(body))), ("Content-Length", "1"), ("Transfer-Encoding", "chunked"),
         ("Transfer-Encoding", "identity"), ("Transfer-Encoding", "xchunked"),
         ("Transfer-Encoding", "gzip, chunked")]
    )  # fmt: skip
    return Wire(
        request_bytes("POST", path, [*fields_for(port), extra], body, chunked=chance.random() < 0.3),
        whole=False,
    )


def pipelined(chance: Random, path: str, body: bytes, port: int) -> Wire:
    count = chance.choice([2, 3, 8, 40])
    return Wire(request_bytes("POST", path, fields_for(port), body[:20_000]) * count, requests=count)


def half_sent(chance: Random, path: str, body: bytes, port: int) -> Wire:
    whole = request_bytes("POST", path, fields_for(port), body)
    return Wire(whole[: chance.randint(1, len(whole) - 1)], whole=False)


def odd_version(chance: Random, path: str, body: bytes, port: int) -> Wire:
    version = chance.choice(
        ["HTTP/1.0", "HTTP/0.9", "HTTP/1.2", "HTTP/2.0", "HTTP/9.9", "HTTP/1", "HTTX/1.1", "", "HTTP/1.1 x"]
    )
    data = request_bytes("POST", path, fields_for(port), body).replace(b"HTTP/1.1", version.encode(), 1)
    return Wire(data, whole=False)


def nonsense(chance: Random, path: str, body: bytes, port: int) -> Wire:
    match chance.randrange(5):
        case 0:
            data = chance.randbytes(chance.choice([1, 16, 500, 20_000]))
        case 1:
            data = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(200)  # TLS
        case 2:
            data = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + chance.randbytes(9)
        case 3:
            data = body or b"\r\n\r\n"
        case _:
            noisy = bytearray(request_bytes("POST", path, fields_for(port), body[:500]))
            for _ in range(chance.choice([1, 3, 20])):
                noisy[chance.randrange(len(noisy))] = chance.randrange(256)
            data = bytes(noisy)
    return Wire(data, whole=False)


KINDS: list[Callable[[Random, str, bytes, int], Wire]] = [
    odd_method, odd_target, odd_header, odd_header, flood, chunked, broken_chunks, wrong_length, two_framings,
    pipelined, half_sent, odd_version, nonsense,
]  # fmt: skip


def spoiled_wire(chance: Random, path: str, body: bytes, port: int) -> Wire:
    """A request with this body, spoiled below JSON."""
    return chance.choice(KINDS)(chance, path, body, port)
