"""The configuration file: every key, every way of being wrong, exact prices."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from shared.config import (
    Config,
    ProviderConfig,
    RateLimit,
    default_config,
    load_config,
    parse_config,
    prices_of,
)
from shared.errors import ConfigError

EXAMPLE = """
{ "providers": {
    "main": { "kind": "systemone", "base_url": "http://127.0.0.1:9000", "model": "jev-1.13.0",
              "key_env": "TYPESAFE_API_KEY", "isolates_questions": true, "timeout_ms": 3000,
              "max_questions": 64, "max_request_tokens": 64000, "price_per_mtok_usd": 0.042,
              "requests_per_s": 80, "tokens_per_s": 100000, "min_confidence": 0.6 },
    "smart": { "kind": "systemone", "base_url": "https://api.typesafe.ai/", "model": "jev-1.13.0",
               "key_file": "/run/secrets/key", "path": "/inference/v1/systemone", "state": "string",
               "min_confidence": { "boss": 0.8 } } },
  "routing": { "default": ["main"], "boss": ["main", "smart"] },
  "games": { "lango": { "routes": { "boss": "boss", "profile:queen_bee": "boss" },
                        "priorities": { "boss": "critical" }, "weight": 1 } },
  "limits": { "per_session": { "rate_per_s": 50, "burst": 200 },
              "per_game": { "rate_per_s": 20000, "burst": 40000 },
              "per_address": { "rate_per_s": 2000, "burst": 4000 },
              "open_per_address": { "rate_per_s": 20, "burst": 200 },
              "open_per_sub": { "rate_per_s": 0.2, "burst": 20 },
              "sessions_per_sub": 10 },
  "failover": true, "linger_ms": 5, "decide_timeout_ms": 3500, "concurrency": 8 }
"""

YAML = """
providers:
  local: {kind: systemone, base_url: "http://127.0.0.1:8080", model: kev-4b}
routing: {default: [local]}
linger_ms: {default: 0}
"""

TOML = """
decide_timeout_ms = 1000
[providers.local]
kind = "systemone"
base_url = "http://127.0.0.1:8080"
model = "kev-4b"
price_per_mtok_usd = 0.1
[routing]
default = ["local"]
"""


def test_the_documented_example_is_read_in_full() -> None:
    config = parse_config(json.loads(EXAMPLE))
    main, smart = config.providers["main"], config.providers["smart"]
    assert (main.max_questions, main.requests_per_s, main.min_confidence) == (64, 80, 0.6)
    assert (smart.state, smart.path, smart.min_confidence) == (
        "string",
        "/inference/v1/systemone",
        {"boss": 0.8},
    )
    assert config.routing["boss"] == ["main", "smart"]
    assert config.game("lango").routes["profile:queen_bee"] == "boss"
    assert config.game("lango").priorities == {"boss": "critical"}
    assert config.limits.open_per_sub == RateLimit(rate_per_s=0.2, burst=20)
    assert config.limits.sessions_per_sub == 10
    assert (config.linger_for("boss"), config.decide_timeout_ms, config.concurrency) == (5, 3500, 8)


@pytest.mark.parametrize(
    ("suffix", "text"), [(".json", EXAMPLE), (".yaml", YAML), (".yml", YAML), (".toml", TOML)]
)
def test_three_formats_are_read(tmp_path: Path, suffix: str, text: str) -> None:
    path = tmp_path / f"muster{suffix}"
    path.write_text(text)
    assert isinstance(load_config(path), Config)


def test_what_is_not_given_has_the_documented_default() -> None:
    config = parse_config({
        "providers": {"local": {"kind": "systemone", "base_url": "http://127.0.0.1:8080", "model": "kev-4b"}},
        "routing": {"default": ["local"]},
    })  # fmt: skip
    local = config.providers["local"]
    assert (local.timeout_ms, local.max_questions, local.max_request_tokens) == (3000, 64, 64_000)
    assert (config.linger_for("default"), config.decide_timeout_ms, config.concurrency) == (5, 3500, 4)
    assert config.failover
    assert config.game("unlisted").weight == 1
    assert config.game("unlisted").routes == {}


def test_linger_may_differ_by_route() -> None:
    raw = json.loads(EXAMPLE) | {"linger_ms": {"default": 7, "boss": 0}}
    config = parse_config(raw)
    assert (config.linger_for("boss"), config.linger_for("default")) == (0, 7)
    assert parse_config(raw | {"linger_ms": {"boss": 0}}).linger_for("default") == 5


@pytest.mark.parametrize(
    ("base_url", "stated", "isolates"),
    [
        ("https://api.typesafe.ai", None, True),
        ("https://api.typesafe.ai/", False, False),
        ("https://api.typesafe.ai.example", None, False),
        ("http://127.0.0.1:9000", None, False),
        ("http://127.0.0.1:9000", True, True),
    ],
)
def test_isolation_is_assumed_only_where_it_is_known(
    base_url: str, stated: bool | None, isolates: bool
) -> None:
    provider = ProviderConfig(kind="systemone", base_url=base_url, model="m", isolates_questions=stated)
    assert provider.isolates is isolates


def test_the_default_sends_everything_to_the_simulator() -> None:
    config = default_config("http://127.0.0.1:9000")
    assert config.routing == {"default": ["simulator"]}
    assert config.providers["simulator"].base_url == "http://127.0.0.1:9000"
    assert config.providers["simulator"].isolates
    assert not config.providers["simulator"].needs_key


@pytest.mark.parametrize(
    ("usd", "picousd"),
    [
        (0.042, 42_000),
        (0.1, 100_000),
        (0.000001, 1),
        (15, 15_000_000),
        (2.5, 2_500_000),
        (0.29, 290_000),
        (0, 0),
    ],
)
def test_prices_are_exact(usd: float, picousd: int) -> None:
    raw = json.loads(EXAMPLE)
    raw["providers"]["main"]["price_per_mtok_usd"] = usd
    prices = prices_of(parse_config(raw).providers["main"])
    assert (prices.input_picousd, prices.cached_picousd, prices.output_picousd) == (picousd, picousd, 0)


MAIN = ("providers", "main")

WRONG: list[tuple[tuple[str, ...], Any, str]] = [
    (("providers",), {}, "routing.default[0]"),
    (("providers",), [], "providers:"),
    (("providers", "a b"), {"kind": "systemone", "base_url": "http://h", "model": "m"}, "providers.a b:"),
    ((*MAIN, "kind"), "oracle", "providers.main.kind:"),
    ((*MAIN, "kind"), None, "providers.main.kind:"),
    ((*MAIN, "colour"), "red", "providers.main.colour: unknown key"),
    ((*MAIN, "base_url"), "ftp://h", "providers.main.base_url:"),
    ((*MAIN, "base_url"), "http://", "providers.main.base_url:"),
    ((*MAIN, "base_url"), "http://user:secret@h", "providers.main.base_url:"),
    ((*MAIN, "base_url"), "http://h?x=1", "providers.main.base_url:"),
    ((*MAIN, "base_url"), "http://h/a b", "providers.main.base_url:"),
    ((*MAIN, "base_url"), "http://h:99999", "providers.main.base_url:"),
    ((*MAIN, "path"), "v1", "providers.main.path:"),
    ((*MAIN, "key_file"), "/run/key", "providers.main.key_file:"),
    ((*MAIN, "state"), "list", "providers.main.state:"),
    ((*MAIN, "timeout_ms"), 49, "providers.main.timeout_ms:"),
    ((*MAIN, "timeout_ms"), True, "providers.main.timeout_ms:"),
    ((*MAIN, "max_questions"), 0, "providers.main.max_questions:"),
    ((*MAIN, "max_questions"), 801, "providers.main.max_questions:"),
    ((*MAIN, "max_questions"), "64", "providers.main.max_questions:"),
    ((*MAIN, "max_options"), 1, "providers.main.max_options:"),
    ((*MAIN, "price_per_mtok_usd"), -1, "providers.main.price_per_mtok_usd:"),
    ((*MAIN, "price_per_mtok_usd"), 0.0000001, "providers.main.price_per_mtok_usd:"),
    ((*MAIN, "output_price_per_mtok_usd"), 0.1234567, "providers.main.output_price_per_mtok_usd:"),
    ((*MAIN, "min_confidence"), 1.1, "providers.main.min_confidence:"),
    ((*MAIN, "min_confidence"), float("nan"), "providers.main.min_confidence:"),
    ((*MAIN, "min_confidence"), {"boss": -0.1}, "providers.main.min_confidence.boss:"),
    ((*MAIN, "requests_per_s"), 0, "providers.main.requests_per_s:"),
    ((*MAIN, "tokens_per_s"), float("inf"), "providers.main.tokens_per_s:"),
    (("routing",), {"boss": ["main"]}, "routing.default:"),
    (("routing", "boss"), [], "routing.boss:"),
    (("routing", "boss"), "main", "routing.boss:"),
    (("routing", "boss"), ["main", "other"], "routing.boss[1]:"),
    (("routing", "boss"), ["main", "main"], "routing.boss[1]:"),
    (("routing", "boss"), ["main", 3], "routing.boss[1]:"),
    (("routing", "a:b"), ["main"], "routing.a:b:"),
    (("games", "lango", "routes", "boss"), "nowhere", "games.lango.routes.boss:"),
    (("games", "lango", "routes", "profile:"), "boss", "games.lango.routes:"),
    (("games", "lango", "priorities", "boss"), "urgent", "games.lango.priorities.boss:"),
    (("games", "lango", "weight"), 0, "games.lango.weight:"),
    (("games", "lango", "speed"), 1, "games.lango.speed: unknown key"),
    (("games", ""), {}, "games:"),
    (("limits", "per_session", "burst"), 0, "limits.per_session.burst:"),
    (("limits", "per_session", "rate_per_s"), 0, "limits.per_session.rate_per_s:"),
    (("limits", "per_session"), {"burst": 3}, "limits.per_session.rate_per_s: is missing"),
    (("limits", "per_planet"), {}, "limits.per_planet: unknown key"),
    (("limits", "sessions_per_sub"), 0, "limits.sessions_per_sub:"),
    (("failover",), "yes", "failover:"),
    (("linger_ms",), -1, "linger_ms:"),
    (("linger_ms",), {"nowhere": 5}, "linger_ms.nowhere:"),
    (("linger_ms",), {"boss": "5"}, "linger_ms.boss:"),
    (("decide_timeout_ms",), 30_001, "decide_timeout_ms:"),
    (("concurrency",), 0, "concurrency:"),
    (("extra",), 1, "extra: unknown key"),
]


@pytest.mark.parametrize(("path", "value", "named"), WRONG)
def test_a_wrong_file_names_the_path_of_the_wrong_key(
    path: tuple[str, ...], value: object, named: str
) -> None:
    raw = json.loads(EXAMPLE)
    place = raw
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = copy.deepcopy(value)
    with pytest.raises(ConfigError) as caught:
        parse_config(raw)
    assert str(caught.value).startswith(named)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("missing", "named"), [(("routing",), "routing"), ((*MAIN, "model"), "providers.main.model")]
)
def test_a_missing_key_is_named(missing: tuple[str, ...], named: str) -> None:
    raw = json.loads(EXAMPLE)
    place = raw
    for key in missing[:-1]:
        place = place[key]
    del place[missing[-1]]
    with pytest.raises(ConfigError, match=rf"^{named}: is missing$"):
        parse_config(raw)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", b"{"),
        ("a.toml", b"providers = "),
        ("a.yaml", b"providers: [\n"),
        ("a.yaml", b"- 1\n"),
        ("a.yaml", b"1: 2\n"),
        ("a.yaml", b"linger_ms: 2020-13-45\n"),
        ("a.yaml", b"[" * 5_000),
        ("a.toml", b"a = " + b"[" * 5_000),
        ("a.json", b"\xff\xfe"),
        ("a.ini", b"x"),
        ("a.json", b"[" * 100_000),
    ],
)
def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigError):
        load_config(path)


def test_a_file_that_is_not_there_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        load_config(tmp_path / "nowhere.toml")
