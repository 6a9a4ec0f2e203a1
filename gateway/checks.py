"""Which requests a gateway looks at, before anything else of it is read. Pure.

A2G Security, "Local-profile request checks": a service on loopback is reachable from every web page in the
developer's browser, so Host, Origin and Content-Type decide.
"""

import re
from collections.abc import Sequence

from shared.errors import InputError

_WHOLE = re.compile(r"-?[0-9]{1,64}")
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


def hosts_asked(target: str, hosts: Sequence[str]) -> Sequence[str]:
    """The hosts that a request names: its target's, where that is a whole address, else its `Host` headers.

    RFC 9112, 3.2.2: a server ignores `Host` when the target says who is meant.
    """
    _, scheme, rest = target.partition("://")
    if target.startswith("/") or not scheme:
        return hosts
    return [re.split(r"[/?#]", rest, maxsplit=1)[0]]


def host_allowed(hosts: Sequence[str]) -> bool:
    """Whether the `Host` headers name loopback, with any port; exactly one must be there."""
    if len(hosts) != 1:
        return False
    name, port = _split_port(hosts[0])
    return name.lower() in LOOPBACK_NAMES and (not port or (port.isascii() and port.isdigit()))


def origin_allowed(origins: Sequence[str], port: int) -> bool:
    """Whether the request has no `Origin`, or that of the gateway's own console on `port`."""
    if not origins:
        return True
    own = {f"http://{name}:{port}" for name in LOOPBACK_NAMES}
    return len(origins) == 1 and origins[0].lower() in own


def is_json(content_types: Sequence[str]) -> bool:
    """Whether the body is declared `application/json`; parameters such as a charset are ignored."""
    return (
        len(content_types) == 1 and content_types[0].partition(";")[0].strip().lower() == "application/json"
    )


def is_plain(content_encodings: Sequence[str]) -> bool:
    """Whether the body is sent as it is: a compressed one could not be bounded before it is unpacked."""
    return all(coding.strip().lower() in ("", "identity") for coding in content_encodings)


def expects_continue(expectations: Sequence[str]) -> bool:
    """Whether the sender holds its body back until it hears `100 Continue` (RFC 9110, 10.1.1)."""
    return any(expectation.strip().lower() == "100-continue" for expectation in expectations)


def timeout_ms(values: Sequence[str]) -> int | None:
    """The caller's `A2G-Timeout-Ms`, clamped to 50-30,000, None when absent.

    Raises InputError for anything that is not one whole number.
    """
    if not values:
        return None
    text = values[0].strip()
    if len(values) != 1 or _WHOLE.fullmatch(text) is None:
        raise InputError("A2G-Timeout-Ms", "must be a whole number of milliseconds")
    return min(30_000, max(50, int(text)))


def _split_port(host: str) -> tuple[str, str]:
    if host.startswith("["):
        name, bracket, rest = host.partition("]")
        return name + bracket, rest[1:] if rest.startswith(":") else ("" if not rest else "invalid")
    name, _, port = host.partition(":")
    return name, port
