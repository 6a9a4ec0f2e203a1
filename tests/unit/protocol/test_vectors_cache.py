"""The published cases of equal and unequal situations (tests/vectors/a2g/cache_equivalence.json)."""

import json
from pathlib import Path
from typing import Any

import pytest

from shared.protocol.cache_key import compile_cache_key
from shared.protocol.compiled import CompiledContexts, CompiledManifest
from shared.protocol.manifest import parse_manifest

VECTORS = Path(__file__).parents[2] / "vectors" / "a2g" / "cache_equivalence.json"
CASES = json.loads(VECTORS.read_text())["cases"]


def digest(case: dict[str, Any], side: str) -> bytes:
    manifest_text = case.get(f"manifest_{side}", case["manifest"])
    parsed = parse_manifest(manifest_text)
    update = case.get(f"context_{side}", {})
    contexts = parsed.contexts.updated(update.get("scopes"), update.get("profiles"), parsed.manifest)
    body = json.dumps(case[side]["request"]).encode()
    compiled = CompiledContexts(contexts, parsed.manifest)
    request = CompiledManifest(parsed.manifest).decode_decide(body, compiled)
    entity = request.entities[case[side]["entity_index"]]
    key = compile_cache_key(entity.entity_type, parsed.manifest)
    assert key is not None
    return key.digest(request, entity, contexts, case[side].get("parent_action"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case: dict[str, Any]) -> None:
    assert (digest(case, "a") == digest(case, "b")) == case["equal"]
