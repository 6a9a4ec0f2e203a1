"""What can go wrong with a provider call, as one tree.

ProviderError                    an attempt that brought no usable reply: fallback code `unavailable`
├── ProviderTimeoutError         no complete reply within the time given
├── ProviderUnreachableError     refused, reset or cut off
├── ProviderOverloadedError      429, 503, 529: full; may say when to come back
├── ProviderFailedError          another 5xx: broken on its side
├── ProviderCredentialsError     401, 402, 403, or no key at hand: operators must act
├── ProviderRejectedError        400, 404, 413, 422 or a cap of ours: the request is wrong, never sent again
└── ProviderMalformedError       a reply that is not what the wire format promises

A missing or impossible answer to one question is no error of the call: it is that entity's `NoAnswer`.
No text here quotes a reply or a header: a provider may echo the key it was sent.
"""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import ClassVar, Literal

import msgspec

from shared.errors import MusterError

MAX_RETRY_AFTER_MS = 3_600_000  # an hour; whoever asks for more is as good as gone

# Named in an error's text when the provider gives one of them; anything else stays unquoted.
_KNOWN_REASONS = frozenset(
    {
        "api_usage_error",
        "authentication_error",
        "invalid_request_error",
        "max_tokens_exceeded",
        "model_not_found",
        "not_found",
        "permission_error",
        "rate_limit_error",
    }
)


class ProviderError(MusterError):
    """One attempt failed. `billed` says whether the provider may charge for it all the same."""

    code: ClassVar[Literal["unavailable"]] = "unavailable"
    kind: ClassVar[str] = "failed"  # short and fixed: fit for a metric's label
    retryable: ClassVar[bool] = True  # another attempt, there or elsewhere, may succeed

    def __init__(self, problem: str, *, billed: bool = False, retry_after_ms: int | None = None) -> None:
        super().__init__(problem)
        self.billed = billed
        self.retry_after_ms = retry_after_ms


class ProviderTimeoutError(ProviderError):
    """The time that was left ran out. Billed once the request had been sent."""

    kind = "timeout"


class ProviderUnreachableError(ProviderError):
    """No connection, or one that broke. Billed once the request had been sent."""

    kind = "unreachable"


class ProviderOverloadedError(ProviderError):
    """The provider turned the request away because it is full; nothing was evaluated."""

    kind = "overloaded"


class ProviderFailedError(ProviderError):
    """The provider broke while handling the request."""

    kind = "failed"


class ProviderCredentialsError(ProviderError):
    """The key is missing, wrong or may not do this. The same call will fail until someone acts."""

    kind = "credentials"
    retryable = False


class ProviderRejectedError(ProviderError):
    """The request breaks the provider's rules: our fault, or the configuration's."""

    kind = "rejected"
    retryable = False


class ProviderMalformedError(ProviderError):
    """A reply that cannot be read as the wire format has it."""

    kind = "malformed"


def error_for_status(status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """The error that a reply other than 200 stands for. `headers` has lower-case names."""
    text = f"HTTP {status}"
    reason = _reason(body)
    if reason:
        text += f" ({reason})"
    match status:
        case 429 | 503 | 529:
            return ProviderOverloadedError(text, retry_after_ms=retry_after_ms(headers))
        case 401 | 402 | 403:
            return ProviderCredentialsError(text)
        case 501:
            return ProviderRejectedError(text)  # vLLM: this model cannot decide
        case _ if status >= 500:
            return ProviderFailedError(text, billed=True)
        case _ if status >= 400:
            return ProviderRejectedError(text)
    return ProviderMalformedError(f"{text} where 200 was expected", billed=200 <= status < 300)


def retry_after_ms(headers: Mapping[str, str]) -> int | None:
    """Milliseconds from `retry-after-ms` or `retry-after` (seconds or a date); None when neither can be read.

    A date counts from the reply's own `date` header, so that no clocks are compared.
    """
    for name, unit_ms in (("retry-after-ms", 1.0), ("retry-after", 1_000.0)):
        text = headers.get(name, "").strip()
        try:
            wait_ms = float(text) * unit_ms
        except ValueError:
            continue
        if wait_ms >= 0:  # false for NaN
            return int(min(wait_ms, MAX_RETRY_AFTER_MS))
    return _until_date_ms(headers.get("retry-after"), headers.get("date"))


def _until_date_ms(retry_at: str | None, now: str | None) -> int | None:
    if retry_at is None or now is None:
        return None
    try:
        wait = parsedate_to_datetime(retry_at) - parsedate_to_datetime(now)
    except (ValueError, TypeError, OverflowError):  # no date, none that exists, or one without a zone
        return None
    return int(min(max(wait.total_seconds() * 1_000, 0), MAX_RETRY_AFTER_MS))


class _Problem(msgspec.Struct):
    error_type: object = None
    type: object = None
    code: object = None


class _ErrorBody(msgspec.Struct):
    detail: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")


def _reason(body: bytes) -> str | None:
    try:
        both = msgspec.json.decode(body, type=_ErrorBody)
        problems = [msgspec.json.decode(raw, type=_Problem | None) for raw in (both.detail, both.error)]
    except (msgspec.MsgspecError, RecursionError):
        return None
    for problem in problems:
        if problem is not None:
            for name in (problem.error_type, problem.code, problem.type):
                if isinstance(name, str) and name in _KNOWN_REASONS:
                    return name
    return None
