"""The configuration file: providers, routing, games, limits (DESIGN, "Command line and configuration").

Frozen values, loaded once at start from `.toml`, `.yaml` or `.json`. A wrong file fails with a ConfigError
that names the path of the wrong key. Nothing here is secret: keys are named (`key_env`, `key_file`), never
held.
"""

import math
import re
import tomllib
import types
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec
import yaml
from msgspec import Meta

from shared.errors import ConfigError
from shared.scheduling.routing import DEFAULT_ROUTE, PriorityName

ProviderKind = Literal["systemone"]  # one entry per line of `workers.providers.registry`

MAX_OPTIONS = 255  # of one choice question, at every known provider
ISOLATING_HOSTS = frozenset({"api.typesafe.ai"})  # known to evaluate each question on its own

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # of providers and routes: they occur in queue keys and labels
_PICOUSD_PER_TOKEN = 1_000_000  # 1 USD per million tokens is 10^12 / 10^6 pico-dollars a token

Rate = Annotated[float, Meta(gt=0)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Price = Annotated[float, Meta(ge=0, le=10_000)]
TimeoutMs = Annotated[int, Meta(ge=50, le=30_000)]
LingerMs = Annotated[int, Meta(ge=0, le=1_000)]
Text = Annotated[str, Meta(min_length=1, max_length=256)]


class ProviderConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One provider account: its address, caps and prices.

    `state` says how the objects in `state` and `instructions` travel: as JSON objects, or as their JSON text
    in a string, for servers that take strings only. `requests_per_s`, `tokens_per_s` (shared quotas) and
    `min_confidence` (escalation along the route) are checked here and used by nothing yet.
    """

    kind: ProviderKind
    base_url: Text
    model: Text
    path: Text | None = None  # the kind's own unless given
    key_env: Text | None = None
    key_file: Text | None = None
    state: Literal["object", "string"] = "object"
    isolates_questions: bool | None = None
    timeout_ms: TimeoutMs = 3_000  # of one attempt; A2G Limits, "Provider timeout"
    max_questions: Annotated[int, Meta(ge=1, le=800)] = 64
    max_options: Annotated[int, Meta(ge=2, le=MAX_OPTIONS)] = MAX_OPTIONS
    max_request_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] = 64_000
    price_per_mtok_usd: Price = 0.0
    cached_price_per_mtok_usd: Price | None = None  # the full price unless given
    output_price_per_mtok_usd: Price = 0.0
    requests_per_s: Rate | None = None
    tokens_per_s: Rate | None = None
    min_confidence: Fraction | dict[str, Fraction] | None = None

    @property
    def isolates(self) -> bool:
        """Whether one question's answer cannot depend on another's: False unless configured or known."""
        if self.isolates_questions is not None:
            return self.isolates_questions
        return urlsplit(self.base_url).hostname in ISOLATING_HOSTS

    @property
    def needs_key(self) -> bool:
        """Whether calls carry a key; without it the provider is unavailable."""
        return self.key_env is not None or self.key_file is not None


class GameConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One game's routes and priorities, by entity type or `profile:<name>`.

    `weight` (its share of provider slots) is checked here and used by nothing yet.
    """

    routes: dict[str, str] = {}
    priorities: dict[str, PriorityName] = {}
    weight: Annotated[int, Meta(ge=1, le=1_000)] = 1


class RateLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sustained rate and how much may come at once."""

    rate_per_s: Rate
    burst: Annotated[int, Meta(ge=1)]


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rate limits; None is the profile's own default. Checked here and used by nothing yet."""

    per_session: RateLimit | None = None
    per_game: RateLimit | None = None
    per_address: RateLimit | None = None
    open_per_address: RateLimit | None = None
    open_per_sub: RateLimit | None = None
    sessions_per_sub: Annotated[int, Meta(ge=1)] | None = None


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file.

    `routing` maps a route to its chain of providers, first asked first; with `failover` the next one is asked
    when a call fails and time is left. `concurrency` is the number of calls that one worker has in flight
    with each provider.
    """

    providers: dict[str, ProviderConfig]
    routing: dict[str, list[str]]
    games: dict[str, GameConfig] = {}
    limits: LimitsConfig = LimitsConfig()
    failover: bool = True
    linger_ms: LingerMs | dict[str, LingerMs] = 5  # one for all routes, or by route
    decide_timeout_ms: TimeoutMs = 3_500
    concurrency: Annotated[int, Meta(ge=1, le=1_000)] = 4  # A2G Limits, "Concurrent provider calls"

    def game(self, name: str) -> GameConfig:
        """The game's entry; a game that is not listed has default routes and weight 1."""
        return self.games.get(name, _UNLISTED_GAME)

    def linger_for(self, route: str) -> int:
        """Milliseconds that a route's oldest question may wait for company."""
        if isinstance(self.linger_ms, int):
            return self.linger_ms
        return self.linger_ms.get(route, self.linger_ms.get(DEFAULT_ROUTE, 5))


_UNLISTED_GAME = GameConfig()


class Prices(msgspec.Struct, frozen=True):
    """Exact prices in pico-dollars per token, which is nano-dollars per thousand tokens.

    $0.042 per million tokens is 42,000 of them, 42 nano-dollars a token.
    """

    input_picousd: int
    cached_picousd: int
    output_picousd: int


def prices_of(provider: ProviderConfig) -> Prices:
    """The provider's prices; exact, as `checked` has refused what is not a whole number of pico-dollars."""
    full = provider.price_per_mtok_usd
    cached = provider.cached_price_per_mtok_usd
    return Prices(
        input_picousd=_picousd(full),
        cached_picousd=_picousd(full if cached is None else cached),
        output_picousd=_picousd(provider.output_price_per_mtok_usd),
    )


def _picousd(usd_per_mtok: float) -> int:
    return int(_exact_picousd(usd_per_mtok))


def _exact_picousd(usd_per_mtok: float) -> Decimal:
    # `repr` of a float is the shortest decimal that reads back as it: what the operator wrote.
    return Decimal(repr(usd_per_mtok)) * _PICOUSD_PER_TOKEN


def default_config(simulator_url: str) -> Config:
    """What runs without a file: everything goes to the provider simulator at `simulator_url`."""
    simulator = ProviderConfig(
        kind="systemone",
        base_url=simulator_url,
        model="simulator-1",
        isolates_questions=True,
        price_per_mtok_usd=0.042,  # TypeSafe's, so that the cost shown is that of a real provider
    )
    return checked(Config(providers={"simulator": simulator}, routing={DEFAULT_ROUTE: ["simulator"]}))


def checked(config: Config) -> Config:
    """Return `config` when its parts fit each other; else raise ConfigError naming the key."""
    for name, provider in config.providers.items():
        _require_name(name, f"providers.{name}")
        _check_provider(provider, f"providers.{name}")
    _check_routing(config)
    for name, game in config.games.items():
        if not 1 <= len(name) <= 128:
            raise ConfigError("games: a game's name has 1 to 128 characters")
        _check_game(game, f"games.{name}", config.routing)
    if isinstance(config.linger_ms, dict):
        for route in config.linger_ms:
            _require_route(route, f"linger_ms.{route}", config.routing)
    return config


def _check_provider(provider: ProviderConfig, path: str) -> None:
    _check_url(provider.base_url, f"{path}.base_url")
    if provider.path is not None and not re.fullmatch(r"/[!-~]*", provider.path):
        raise ConfigError(f"{path}.path: must start with / and hold no spaces")
    if provider.key_env is not None and provider.key_file is not None:
        raise ConfigError(f"{path}.key_file: give key_env or key_file, not both")
    for field in ("price_per_mtok_usd", "cached_price_per_mtok_usd", "output_price_per_mtok_usd"):
        price = getattr(provider, field)
        if price is not None and _exact_picousd(price) % 1:
            raise ConfigError(f"{path}.{field}: at most 6 decimals, so that sums are exact")


def _check_url(url: str, path: str) -> None:
    try:
        parts = urlsplit(url)
        port_fits = parts.port is None or parts.port > 0
    except ValueError:
        port_fits = False
    if not port_fits or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"{path}: must be an http or https address")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{path}: must hold no credentials; use key_env or key_file")
    if parts.query or parts.fragment or not re.fullmatch(r"[!-~]+", url):
        raise ConfigError(f"{path}: must be plain ASCII without query or fragment")


def _check_routing(config: Config) -> None:
    if DEFAULT_ROUTE not in config.routing:
        raise ConfigError(f"routing.{DEFAULT_ROUTE}: is missing")
    for route, chain in config.routing.items():
        path = f"routing.{route}"
        _require_name(route, path)
        if not chain:
            raise ConfigError(f"{path}: must name at least one provider")
        for place, provider in enumerate(chain):
            if provider not in config.providers:
                raise ConfigError(f"{path}[{place}]: no provider is called {provider!r}")
            if provider in chain[:place]:
                raise ConfigError(f"{path}[{place}]: {provider!r} is already in this route")


def _check_game(game: GameConfig, path: str, routing: dict[str, list[str]]) -> None:
    for section, keys in (("routes", game.routes), ("priorities", game.priorities)):
        for key in keys:
            if not key.removeprefix("profile:"):
                raise ConfigError(f"{path}.{section}: a key is an entity type or profile:<name>")
    for key, route in game.routes.items():
        _require_route(route, f"{path}.routes.{key}", routing)


def _require_route(route: str, path: str, routing: dict[str, list[str]]) -> None:
    if route not in routing:
        raise ConfigError(f"{path}: no route is called {route!r}")


def _require_name(name: str, path: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{path}: a name has 1 to 64 letters, digits, dots, dashes and underscores")


def load_config(path: Path) -> Config:
    """Read a `.toml`, `.yaml`, `.yml` or `.json` file; raises ConfigError naming file or key."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path}: cannot be read ({type(exc).__name__})") from exc
    return parse_config(_decoded(path, text))


def parse_config(raw: object) -> Config:
    """Check plain values (dicts, lists, scalars) against the configuration's types and cross rules."""
    return checked(cast("Config", _converted(raw, Config, "")))


def _decoded(path: Path, text: str) -> object:
    try:
        match path.suffix.lower():
            case ".toml":
                return tomllib.loads(text)
            case ".yaml" | ".yml":
                return yaml.safe_load(text)
            case ".json":
                return msgspec.json.decode(text)
    except (ValueError, yaml.YAMLError, msgspec.DecodeError, RecursionError) as exc:  # YAML: impossible dates
        raise ConfigError(f"{path}: {' '.join(str(exc).split())}") from exc
    raise ConfigError(f"{path}: must end in .toml, .yaml or .json")


def _converted(value: object, kind: Any, path: str) -> Any:
    """`value` as `kind`. msgspec alone would name a key of a map as `[...]`, so maps are walked here."""
    kind = _member(kind, value)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(_mapping(value, path), kind, path)
    if get_origin(kind) is dict:
        item = get_args(kind)[1]
        return {key: _converted(each, item, _join(path, key)) for key, each in _mapping(value, path).items()}
    if not _is_finite(value):
        raise ConfigError(f"{path}: must be a finite number")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        problem, _, place = str(exc).partition(" - at `$")
        raise ConfigError(f"{path}{place.rstrip('`')}: {problem[0].lower()}{problem[1:]}") from exc


def _struct(values: Mapping[str, object], kind: type[msgspec.Struct], path: str) -> msgspec.Struct:
    hints = get_type_hints(kind, include_extras=True)
    for key in values:
        if key not in hints:
            raise ConfigError(f"{_join(path, key)}: unknown key")
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in values:
            raise ConfigError(f"{_join(path, field.name)}: is missing")
    return kind(**{key: _converted(each, hints[key], _join(path, key)) for key, each in values.items()})


def _mapping(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path or 'the file'}: must be a map of keys")
    for key in value:
        if not isinstance(key, str):
            raise ConfigError(f"{path or 'the file'}: key {key!r} must be a string")
    return value


def _member(kind: Any, value: object) -> Any:
    """The member of a union that a map belongs to; scalars are left for msgspec to tell apart."""
    if get_origin(kind) is Annotated or not isinstance(value, dict):
        return kind
    if get_origin(kind) not in {Union, types.UnionType}:
        return kind
    for member in get_args(kind):
        if get_origin(member) is dict or (isinstance(member, type) and issubclass(member, msgspec.Struct)):
            return member
    return kind


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _is_finite(value: object) -> bool:
    """False for NaN and infinities, which TOML and YAML can spell."""
    return not isinstance(value, float) or math.isfinite(value)
