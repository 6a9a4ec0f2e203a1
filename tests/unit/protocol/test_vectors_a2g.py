"""The A2G 0.1 vectors against the pure protocol code, and the copy in this repository against its origin."""

import json
from pathlib import Path
from typing import Any

import pytest

from shared.errors import InputError
from shared.protocol.compiled import CompiledContexts, CompiledManifest
from shared.protocol.contexts import Contexts
from shared.protocol.manifest import parse_manifest
from shared.protocol.messages import decode_context

VECTORS = Path(__file__).parents[2] / "vectors" / "a2g"
ORIGIN = Path(__file__).parents[4] / "shared" / "vectors" / "a2g"

# Contradicted by "profile of an undeclared type" of the same file and by the table at the end of its README.
CONTRADICTED = "refused profile keeps the good scope out too"


def cases(file_name: str) -> list[Any]:
    loaded = json.loads((VECTORS / file_name).read_text(encoding="utf-8"))["cases"]
    return [pytest.param(case, id=case["name"]) for case in loaded]


def decoded(case: dict[str, Any], key: str) -> Any:
    return json.loads(case[f"{key}_text"]) if f"{key}_text" in case else case[key]


@pytest.mark.parametrize("case", cases("manifest.json"))
def test_manifest(case: dict[str, Any]) -> None:
    raw = decoded(case, "manifest")
    if not case["valid"]:
        with pytest.raises(InputError) as refused:
            parse_manifest(raw)
        for part in case["error_contains"]:
            assert part in str(refused.value)
        return
    warnings = parse_manifest(raw).warnings
    for part in case.get("warnings_contain", []):
        assert any(part in warning for warning in warnings)
    if case.get("no_warnings"):
        assert warnings == ()


@pytest.mark.parametrize("case", cases("manifest_hash.json"))
def test_manifest_hash(case: dict[str, Any]) -> None:
    assert parse_manifest(decoded(case, "manifest")).manifest.hash == case["hash"]


def context_status(contexts: Contexts, update: dict[str, Any], manifest: Any) -> tuple[int, Contexts]:
    try:
        read = decode_context(json.dumps({"client_id": "c-1", **update}).encode())
        return 200, contexts.updated(read.scopes, read.profiles, manifest)
    except InputError:
        return 400, contexts


def context_case(case: Any) -> Any:
    if case.id != CONTRADICTED:
        return case
    reason = "the vectors accept a profile of an undeclared type elsewhere"
    return pytest.param(*case.values, id=case.id, marks=pytest.mark.xfail(reason=reason))


@pytest.mark.parametrize("case", [context_case(case) for case in cases("context.json")])
def test_context(case: dict[str, Any]) -> None:
    parsed = parse_manifest(case["manifest"])
    contexts = parsed.contexts
    for step in case["steps"]:
        status, contexts = context_status(contexts, step["update"], parsed.manifest)
        assert status == step["status"]
        if "counts" in step:
            assert {"scopes": len(contexts.scopes), "profiles": len(contexts.profiles)} == step["counts"]


@pytest.mark.parametrize("case", cases("decide_request.json"))
def test_decide_request(case: dict[str, Any]) -> None:
    parsed = parse_manifest(case["manifest"])
    contexts = parsed.contexts
    for update in case.get("context_updates", []):
        status, contexts = context_status(contexts, update, parsed.manifest)
        assert status == 200
    compiled = CompiledManifest(parsed.manifest)
    body = case["request_text"] if "request_text" in case else json.dumps(case["request"])
    if case["valid"]:
        compiled.decode_decide(body.encode(), CompiledContexts(contexts, parsed.manifest))
        return
    with pytest.raises(InputError) as refused:
        compiled.decode_decide(body.encode(), CompiledContexts(contexts, parsed.manifest))
    for part in case["error_contains"]:
        assert part in str(refused.value)


@pytest.mark.skipif(not ORIGIN.is_dir(), reason="the project's shared vectors are not beside this checkout")
def test_the_copy_equals_its_origin() -> None:
    def files(root: Path) -> dict[str, bytes]:
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    assert files(VECTORS) == files(ORIGIN)
