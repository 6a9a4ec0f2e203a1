"""What a provider would refuse, found before it is asked: one bad question fails a whole call. Pure."""

from shared.config import ProviderConfig
from workers.providers.base import ModelRequest, NoAnswer
from workers.providers.errors import ProviderRejectedError

TOO_MANY_OPTIONS = NoAnswer("unavailable", "more options than the provider takes")
TOO_FEW_OPTIONS = NoAnswer("unavailable", "a choice needs two options")


def check_request(provider: ProviderConfig, request: ModelRequest) -> None:
    """Raise ProviderRejectedError when the call as a whole is over the provider's caps."""
    questions = len(request.questions)
    if questions > provider.max_questions:
        raise ProviderRejectedError(f"{questions} questions, the provider takes {provider.max_questions}")
    tokens = request.estimated_tokens
    if tokens > provider.max_request_tokens:
        raise ProviderRejectedError(f"{tokens} tokens, the provider takes {provider.max_request_tokens}")


def unaskable(provider: ProviderConfig, request: ModelRequest) -> dict[int, NoAnswer]:
    """The questions, by place in the request, that must be left out of the call, and why."""
    found: dict[int, NoAnswer] = {}
    for place, question in enumerate(request.questions):
        options = len(question.options)
        if options > provider.max_options:
            found[place] = TOO_MANY_OPTIONS
        elif options < 2:
            found[place] = TOO_FEW_OPTIONS
    return found
