"""Asking one configured provider: caps, request, transport, reply, cost. What a worker calls."""

from collections.abc import Mapping

import msgspec
import structlog

from shared.config import ProviderConfig, prices_of
from shared.scheduling.tokens import cost_nanousd
from workers.providers.base import Answer, ModelRequest, NoAnswer, ProviderReply, Usage
from workers.providers.caps import check_request, unaskable
from workers.providers.credentials import ProviderKey, read_key
from workers.providers.errors import ProviderCredentialsError, ProviderError, ProviderMalformedError
from workers.providers.registry import KINDS
from workers.providers.transport import ProviderTransport

_log = structlog.get_logger(__name__)


class Attempt(msgspec.Struct, frozen=True):
    """What one attempt brought and cost: either `reply` or `error` is there.

    `usage` is what was charged for: the provider's count, or our estimate (`estimated`) where it gave none;
    zero for an attempt that no provider bills.
    """

    reply: ProviderReply | None
    error: ProviderError | None
    usage: Usage
    estimated: bool
    cost_nanousd: int


class ProviderClient:
    """One entry of the configuration's `providers`."""

    def __init__(
        self, name: str, provider: ProviderConfig, transport: ProviderTransport, env: Mapping[str, str]
    ) -> None:
        self.name = name
        self.provider = provider
        self._kind = KINDS[provider.kind]
        self._key: ProviderKey | None = read_key(name, provider, env)
        self._prices = prices_of(provider)
        self._transport = transport

    async def ask(self, request: ModelRequest, remaining_ms: int) -> Attempt:
        """Ask `request` once, within `remaining_ms` and the provider's own timeout.

        A failure is a value, `Attempt.error`, since it costs too; no ProviderError is raised. The reply's
        answers are aligned with `request.questions`; questions over the provider's caps are left out of the
        call and answered here.
        """
        try:
            check_request(self.provider, request)
            if self._key is None and self.provider.needs_key:
                raise ProviderCredentialsError("the key is not set")
        except ProviderError as error:
            return self._failed(request, error)
        left_out = unaskable(self.provider, request)
        if not left_out:
            return await self._asked(request, remaining_ms)
        askable = [each for place, each in enumerate(request.questions) if place not in left_out]
        if not askable:
            answers: list[Answer | NoAnswer] = list(left_out.values())
            return Attempt(ProviderReply(answers, Usage(), ""), None, Usage(), False, 0)
        attempt = await self._asked(ModelRequest(request.state, askable), remaining_ms)
        if attempt.reply is None:
            return attempt
        given = iter(attempt.reply.answers)
        answers = [
            left_out[place] if place in left_out else next(given) for place in range(len(request.questions))
        ]
        return msgspec.structs.replace(attempt, reply=msgspec.structs.replace(attempt.reply, answers=answers))

    async def _asked(self, request: ModelRequest, remaining_ms: int) -> Attempt:
        call = self._kind.build_request(self.provider, request)
        timeout_ms = min(remaining_ms, self.provider.timeout_ms)
        try:
            got = await self._transport.send(self.provider.base_url, call, self._key, timeout_ms)
            reply = self._kind.parse_response(request, got.status, got.headers, got.body)
        except ProviderError as error:
            return self._failed(request, error)
        except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
            # A kind reads what a stranger sent: whatever it stumbles over is one bad reply, not a lost batch.
            _log.exception("a reply could not be read", provider=self.name)
            unread = ProviderMalformedError(
                f"the reply could not be read ({type(error).__name__})", billed=True
            )
            return self._failed(request, unread)
        # Some servers always count zero: what they read is then our estimate (PROVIDERS, sparrow-decider).
        estimated = reply.usage.input_tokens == 0
        usage = Usage(input_tokens=request.estimated_tokens) if estimated else reply.usage
        return Attempt(reply, None, usage, estimated, self._cost(usage))

    def _failed(self, request: ModelRequest, error: ProviderError) -> Attempt:
        usage = Usage(input_tokens=request.estimated_tokens) if error.billed else Usage()
        return Attempt(None, error, usage, error.billed, self._cost(usage))

    def _cost(self, usage: Usage) -> int:
        prices = self._prices
        return cost_nanousd(
            (usage.input_tokens - usage.cached_tokens, prices.input_picousd),
            (usage.cached_tokens, prices.cached_picousd),
            (usage.output_tokens, prices.output_picousd),
        )
