"""The use cases around sessions: open one, change its scopes and profiles."""

from gateway.http import Call
from gateway.reply import UNKNOWN_SESSION, Reply, reply_json
from gateway.sessions import Sessions
from shared.protocol.limits import PROTOCOL_VERSION
from shared.protocol.manifest import parse_manifest
from shared.protocol.messages import decode_context
from shared.protocol.session import decode_session


class OpenSession:
    """Answers `POST /v1/session` in the local profile: no credential, so no session token either."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def __call__(self, call: Call) -> Reply:
        """Raises InputError for another version or a manifest that breaks a rule, naming its path."""
        request = decode_session(call.body)
        parsed = parse_manifest(request.manifest)
        await self._sessions.open(request, parsed)
        reply: dict[str, object] = {
            "a2g": PROTOCOL_VERSION,
            "ok": True,
            "manifest_hash": parsed.manifest.hash,
        }
        if parsed.warnings:
            reply["warnings"] = parsed.warnings
        return reply_json(200, reply)


class UpdateContext:
    """Answers `POST /v1/context`."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def __call__(self, call: Call) -> Reply:
        """Raises InputError when the result would not be valid as a whole; nothing changes then."""
        contexts = await self._sessions.update_contexts(decode_context(call.body))
        if contexts is None:
            return UNKNOWN_SESSION
        counts = {"scopes": len(contexts.scopes), "profiles": len(contexts.profiles)}
        return reply_json(200, {"ok": True, **counts})
