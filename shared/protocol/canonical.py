"""Canonical JSON (RFC 8785) and the manifest hash. Pure."""

import hashlib
from collections.abc import Mapping

import rfc8785

from shared.errors import InputError

# They may change during a session (A2G Manifest, "Manifest hash").
CHANGING_KEYS = frozenset({"scopes", "profiles"})


def canonical_json(value: object) -> bytes:
    """RFC 8785 encoding of decoded JSON; numbers are doubles, as RFC 8785 reads them (3.2.2.3).

    Raises `InputError` for what has no canonical form: a lone surrogate, a number beyond a double's range,
    nesting deeper than the interpreter's stack.
    """
    try:
        return rfc8785.dumps(_with_doubles(value))  # type: ignore[arg-type]  # decoded JSON by contract
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as exc:
        raise InputError("", "has no canonical JSON form") from exc
    except OverflowError as exc:
        raise InputError("", "holds a number beyond the range of a double") from exc
    except RecursionError as exc:
        raise InputError("", "is nested too deeply") from exc


def manifest_hash(raw: Mapping[str, object]) -> str:
    """`sha256:…` of the manifest as sent, without its top-level scopes and profiles."""
    return hash_of(canonical_json(without_contexts(raw)))


def without_contexts(raw: Mapping[str, object]) -> dict[str, object]:
    """The manifest's lasting part."""
    return {key: value for key, value in raw.items() if key not in CHANGING_KEYS}


def hash_of(canonical: bytes) -> str:
    """The manifest hash of canonical JSON text."""
    return f"sha256:{hashlib.sha256(canonical).hexdigest()}"


def _with_doubles(value: object) -> object:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return float(value)
    if isinstance(value, dict):
        return {key: _with_doubles(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_with_doubles(member) for member in value]
    return value
