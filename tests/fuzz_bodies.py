"""Bodies for fuzzing: valid ones of every endpoint, from vectors and strategies, and ways to spoil them.

Everything is drawn from the `Random` it is given, so that a body can be made again from its number.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from shared.protocol.manifest import parse_manifest
from tests.strategies import decide_requests, manifests

Json = Any

VECTORS = Path(__file__).parent / "vectors" / "a2g"
OVERSIZE = 256 * 1024 + 1


@dataclass(frozen=True, slots=True)
class Body:
    """One request's path and body, decoded."""

    path: str
    value: Json


@dataclass(frozen=True, slots=True)
class Target:
    """A session: the body that opens it and bodies that it accepts."""

    opening: Body
    bodies: list[Body]


def _load(name: str) -> list[dict[str, Json]]:
    return list(json.loads((VECTORS / name).read_text())["cases"])


def _opening(client_id: str, manifest: Json) -> Body:
    opening = {"a2g": "0.1", "client_id": client_id, "game": "Fuzz", "engine": "None", "manifest": manifest}
    return Body("/v1/session", opening)


def _around(client_id: str, kind: str) -> list[Body]:
    """A context update, a report and a snapshot that any session with this entity type accepts."""
    context: Json = {"scopes": {"cave": {"text": "Dark.", "fields": {"lit": "boolean"}}, "gone": None}}
    report: Json = {"entity_id": "e", "decision_id": "d_1", "action": "idle", "status": "executed"}
    training: Json = {"local_prediction": {"action": "idle", "confidence": 0.5}, "policy_version": "1"}
    row: Json = {"id": "e", "type": kind, "name": "E", "state": "IDLE", "pending": False, "fields": {"hp": 1}}
    row |= {"decision": {"source": "AI", "action": "idle"}, "position": [1, 2.5], "parent": "p"}
    snapshot: Json = {"mode": "ai", "paused": False, "scene": "L1", "last_error": "", "world": {"x": 1}}
    bodies = {
        "/v1/context": {**context, "profiles": {"old": {"text": "Old."}}},
        "/v1/report": {**report, **training, "source": "LOCAL", "outcome": {"hp_delta": -0.5, "won": True}},
        "/v1/telemetry": {**snapshot, "entities": [row, {"id": "f", "type": kind, "fields": {"said": "hi"}}]},
    }
    return [Body(path, {"client_id": client_id, **value}) for path, value in bodies.items()]


def vector_targets(tag: str) -> Iterator[Target]:
    """Sessions of the published cases."""
    for number, case in enumerate(_load("decide_request.json")):
        if case["valid"] and "request" in case and not case.get("context_updates"):
            client_id = f"{tag}-v{number}"
            request = Body("/v1/decide", {**case["request"], "client_id": client_id})
            kind = next(iter(case["manifest"]["entity_types"]))
            yield Target(_opening(client_id, case["manifest"]), [request, request, *_around(client_id, kind)])
    for number, case in enumerate(_load("situation.json")):
        client_id = f"{tag}-s{number}"
        snapshots = [Body("/v1/telemetry", {"client_id": client_id, **body}) for body in case["telemetry"]]
        yield Target(_opening(client_id, case["manifest"]), snapshots)
    for number, case in enumerate(_load("manifest.json")):
        if case["valid"] and "manifest" in case:
            yield Target(_opening(f"{tag}-m{number}", case["manifest"]), [])


@st.composite
def _played(draw: st.DrawFn) -> tuple[Json, list[Json]]:
    manifest = draw(manifests())
    parsed = parse_manifest(manifest)
    requests = st.lists(decide_requests(parsed.manifest, parsed.contexts), min_size=2, max_size=4)
    return manifest, draw(requests)


def drawn_targets(tag: str, count: int) -> list[Target]:
    """Sessions that the strategies make, the same ones every time."""
    drawn: list[Target] = []

    @settings(
        max_examples=count,
        database=None,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(_played())
    def draw(played: tuple[Json, list[Json]]) -> None:
        manifest, requests = played
        client_id = f"{tag}-d{len(drawn)}"
        asked = [Body("/v1/decide", {**request, "client_id": client_id}) for request in requests]
        around = _around(client_id, next(iter(manifest["entity_types"])))
        drawn.append(Target(_opening(client_id, manifest), asked + around))

    draw()
    return drawn


# Texts that take the place of a value in JSON but cannot be made by encoding one.
_RAW = [
    "1e999", "-1e999", "1E-999", "NaN", "Infinity", "-0", "-0.0", "1.0", "01", "0x10", "1.", ".5", "+1",
    "1_0", "9" * 5000, "0." + "1" * 5000, "1e" + "9" * 400, "18446744073709551616", "9223372036854775808",
    "-9223372036854775809", "1e20", "1.7976931348623157e308", "5e-324", "[" * 200 + "]" * 200, "[" * 20_000,
    '{"a":' * 500 + "1" + "}" * 500, '{"a":' * 20_000, '"\\ud800"', '"\\udc00x"', '"\\ud83d\\ude00"',
    '"\\u0000"', '"\\u001b[2J"', '"\\x41"', '"\\u12"', '"\x00"', '"\x1b"', '"\n"', "'a'", "undefined",
    "True", "None", "/* */ 1", "nul", '"a" "b"', "", '{"a":1,"a":2}', '{"id":1,"id":"x"}',
    '{"__proto__":{}}', "{,}", "[1,]", '{"a"}', '{1:2}',
]  # fmt: skip

_VALUES: list[Json] = [
    None, True, False, 0, 1, -1, 7, 7.5, -0.0, 2**31, 2**53, 2**63, -(2**63), 1e300, 1e-300, 0.1 + 0.2, "",
    " ", "a", "idle", "ai", "executed", "LOCAL", "b1", "x" * 80, "x" * 81, "x" * 128, "x" * 129, "x" * 4001,
    "é日😀", "\u0000", "a\nb", "\x7f", "\x85", "\u2028", "\ufeff", "\ud800", "..", "../../etc/passwd",
    "{x}:i:1", "%s%n", "${x}", "'; DROP TABLE decisions; --", "__class__", "type", "world.x", "scope.y",
    "parent.action", [], {}, [[]], [{}], {"": ""}, {"a": {"b": {"c": [1, 2, 3]}}}, [None] * 20,
    list(range(200)), {str(n): n for n in range(60)}, [1, 2], [1, 2, 3], ["a", "a"], [1, 1.0, "1", True],
    {"text": "t", "fields": {"f": "number"}}, {"list": {"a": "number"}, "max": 3},
    {"key": ["hp"], "ttl_ms": 1000},
]  # fmt: skip

_KEYS = [
    "", "id", "type", "observation", "legal_actions", "position", "profile", "parent", "trigger", "epoch",
    "world", "scope", "scope_state", "entities", "client_id", "manifest", "cache", "fields", "actions",
    "list", "max", "text", "unheard of", "x" * 200, "a.b", "\u0000", "é", "\ud800", "__init__",
    "constructor",
]  # fmt: skip


def _places(value: Json, found: list[tuple[Json, Any]]) -> list[tuple[Json, Any]]:
    """Every (container, key) inside a value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        found.append((value, key))
        _places(inner, found)
    return found


def _replace(chance: Random, container: Json, key: Any) -> None:
    container[key] = copy.deepcopy(chance.choice(_VALUES))


def _remove(_: Random, container: Json, key: Any) -> None:
    del container[key]


def _add(chance: Random, container: Json, _key: Any) -> None:
    value = copy.deepcopy(chance.choice(_VALUES))
    if isinstance(container, dict):
        container[chance.choice(_KEYS)] = value
    else:
        container.insert(chance.randint(0, len(container)), value)


def _rename(chance: Random, container: Json, key: Any) -> None:
    if isinstance(container, dict):
        container[chance.choice(_KEYS)] = container.pop(key)
    else:
        container.reverse()


def _repeat(chance: Random, container: Json, key: Any) -> None:
    if isinstance(container, list):
        container.extend(copy.deepcopy(container[key]) for _ in range(chance.choice([1, 2, 16, 130])))
    else:
        times = chance.choice([2, 30, 300])
        container.update({f"{key}{n}": copy.deepcopy(container[key]) for n in range(times)})


def _nudge(chance: Random, container: Json, key: Any) -> None:
    """A value much like the one that was there."""
    value = container[key]
    if isinstance(value, bool):
        container[key] = chance.choice([int(value), str(value), not value])
    elif isinstance(value, int | float):
        container[key] = chance.choice(
            [-value, value + 1, value + 0.5, float(value), str(value), value * 10**30]
        )
    elif isinstance(value, str):
        container[key] = chance.choice(
            [value + "x", value[:-1], value * 50, value.upper(), [value], f" {value}"]
        )
    elif isinstance(value, list):
        container[key] = chance.choice([value[::-1], value + value, value[:1], {"0": value}, value[1:]])
    elif isinstance(value, dict):
        container[key] = chance.choice([list(value), [value], {**value, "more": 1}, {}])


_SPOILERS: list[Callable[[Random, Json, Any], None]] = [
    _replace,
    _replace,
    _remove,
    _add,
    _rename,
    _repeat,
    _nudge,
    _nudge,
]
_MARK = "\ue000raw\ue000"


def spoiled(chance: Random, value: Json) -> str:
    """The JSON text of a value with one to three of its places changed; it may still be valid."""
    value = copy.deepcopy(value)
    raw = None
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        places = _places(value, [])
        if not places:
            break
        container, key = chance.choice(places)
        if chance.random() < 0.2:
            container[key], raw = _MARK, chance.choice(_RAW)
        else:
            chance.choice(_SPOILERS)(chance, container, key)
    text = json.dumps(value, ensure_ascii=chance.random() < 0.8, separators=(",", ":"))
    return (
        text
        if raw is None
        else re.sub(f'"(?:{_MARK}|{json.dumps(_MARK)[1:-1]})"'.replace("\\", r"\\"), lambda _: raw, text)
    )


def _cut(chance: Random, data: bytes) -> bytes:
    return data[: chance.randint(0, len(data))]


def _flip(chance: Random, data: bytes) -> bytes:
    flipped = bytearray(data)
    for _ in range(chance.choice([1, 2, 8])):
        flipped[chance.randrange(len(flipped))] = chance.randrange(256)
    return bytes(flipped)


def _insert(chance: Random, data: bytes) -> bytes:
    place = chance.randint(0, len(data))
    noise = chance.choice(
        [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\x00", b"{", b"]", b",", b'"', b"\\"]
    )
    return data[:place] + noise + data[place:]


def _doubled_key(chance: Random, data: bytes) -> bytes:
    keys = list(re.finditer(rb'"\w+":', data))
    if not keys:
        return data + data
    key = chance.choice(keys)
    value = chance.choice([b"null", b"1", b'"x"', b"[]", b"{}"])
    return data[: key.start()] + key.group() + value + b"," + data[key.start() :]


_ENCODINGS = ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "utf-7"]


def _encoded(chance: Random, data: bytes) -> bytes:
    return data.decode(errors="replace").encode(chance.choice(_ENCODINGS))


def _padded(chance: Random, data: bytes) -> bytes:
    return data.ljust(chance.choice([1000, OVERSIZE - 1, OVERSIZE, OVERSIZE * 2]))


def _around_it(chance: Random, data: bytes) -> bytes:
    before, after = chance.choice(
        [(b"[", b"]"), (b"", b"x"), (b"", data), (b'"', b'"'), (b"// \n", b""), (b"\x1f\x8b", b"")]
    )
    return before + data + after


_DAMAGES: list[Callable[[Random, bytes], bytes]] = [
    _cut, _flip, _insert, _doubled_key, _doubled_key, _encoded, _padded, _around_it,
]  # fmt: skip


def damaged(chance: Random, data: bytes) -> bytes:
    """The bytes of a body, changed without regard to what they say."""
    return chance.choice(_DAMAGES)(chance, data or b" ")


def body_bytes(chance: Random, body: Body) -> bytes:
    """The bytes made from a valid body: as it is, spoiled in places, damaged, or both."""
    # Every spoiled place makes a decide request invalid, and what happens behind the checks counts too.
    if chance.random() < (0.35 if body.path == "/v1/decide" else 0.1):
        return json.dumps(body.value).encode()
    how = chance.random()
    if how < 0.1:
        return damaged(chance, json.dumps(body.value).encode())
    data = spoiled(chance, body.value).encode("utf-8", "surrogatepass")
    return damaged(chance, data) if how > 0.93 else data
