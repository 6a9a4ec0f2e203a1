"""Redis URLs: where a server is and who asks. Pure."""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from shared.errors import ConfigError

_PORT: Final = 6379
_SCHEMES: Final = ("redis", "rediss", "unix")
_OPTIONS: Final = frozenset({"db", "ssl_ca_certs"})  # spelled as redis-py and Celery spell them


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """One server and account: `path` of a Unix socket, or `host` and `port`."""

    host: str = ""
    port: int = _PORT
    path: str = ""
    tls: bool = False
    ca_file: str = ""  # certificates to trust besides the system's
    username: str = ""
    password: str = field(default="", repr=False)
    database: int = 0

    def __str__(self) -> str:
        """For logs and errors: without the account."""
        if self.path:
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'rediss' if self.tls else 'redis'}://{host}:{self.port}"


def parse_redis_url(url: str) -> RedisUrl:
    """Read `redis://[[user]:password@]host[:port][/db]`, `rediss://…` (TLS) or `unix://[…@]/path[?db=N]`.

    `?db=N` and, with TLS, `?ssl_ca_certs=FILE` are understood. Account and path may be percent-encoded.
    Raises ConfigError, which never quotes the URL: it may hold a password.
    """
    try:
        url.encode()  # an environment may hold bytes that are no text
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")
        port = _PORT if parts.port is None else parts.port
    except ValueError:
        raise ConfigError("Redis URL: host or port cannot be read") from None
    if parts.scheme not in _SCHEMES or (not parts.netloc and parts.scheme != "unix"):
        raise ConfigError("Redis URL: must begin with redis://host, rediss://host or unix:///path")
    if "\0" in unquote(url):
        raise ConfigError("Redis URL: holds a NUL")
    options = _options(parts.query)
    username, password = unquote(parts.username or ""), unquote(parts.password or "")
    if parts.fragment or (username and not password):
        raise ConfigError("Redis URL: a user needs a password, and '#' or '?' in one must be percent-encoded")
    if parts.scheme == "unix":
        if parts.hostname or not parts.path.strip("/") or "ssl_ca_certs" in options:
            raise ConfigError("Redis URL: a socket is unix:///path/to/it")
        database = _database(options.get("db", "0"))
        return RedisUrl(path=unquote(parts.path), username=username, password=password, database=database)
    if not parts.hostname:
        raise ConfigError("Redis URL: names no host")
    if "ssl_ca_certs" in options and parts.scheme != "rediss":
        raise ConfigError("Redis URL: ssl_ca_certs goes with rediss://")
    return RedisUrl(
        host=parts.hostname,
        port=port,
        tls=parts.scheme == "rediss",
        ca_file=options.get("ssl_ca_certs", ""),
        username=username,
        password=password,
        database=_database(options["db"] if "db" in options else parts.path.removeprefix("/") or "0"),
    )


def _options(query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    options = dict(pairs)
    if len(options) != len(pairs) or not options.keys() <= _OPTIONS:
        raise ConfigError(
            f"Redis URL: only the options {', '.join(sorted(_OPTIONS))} are understood, each once"
        )
    return options


def _database(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ConfigError("Redis URL: the database must be a whole number")
    return int(text)
