"""Whether an answer agrees with the question it answers. Pure; the same rules for every provider kind."""

from collections.abc import Mapping

from workers.providers.base import Answer, NoAnswer, Question

SUM_TOLERANCE = 0.03  # probabilities may be rounded to two decimals (PROVIDERS, "System One")
ARGMAX_TOLERANCE = 0.01  # one step of that rounding: two options this close are even
_SLACK = 1e-9  # binary floats: 0.97 + 0.06 is a hair more than 1.03

MISSING = NoAnswer("invalid_choice", "no answer to this question")
REFUSED = NoAnswer("refused", "the provider refused this question")
UNREADABLE = NoAnswer("invalid_choice", "the answer is not of the agreed form")
_NOT_OFFERED = NoAnswer("invalid_choice", "the choice is not among the options sent")
_OTHER_OPTIONS = NoAnswer("invalid_choice", "the probabilities are not over the options sent")
_NO_DISTRIBUTION = NoAnswer("invalid_choice", "the probabilities are no distribution")
_NOT_LIKELIEST = NoAnswer("invalid_choice", "the choice is not the likeliest option")


def judged(question: Question, choice: str, probabilities: Mapping[str, float] | None) -> Answer | NoAnswer:
    """The answer, its probabilities renormalised and its confidence computed, or why it cannot count.

    A confidence that the provider states is ignored: providers compute it differently (DESIGN, "Providers").
    """
    options = question.options
    if choice not in options:
        return _NOT_OFFERED
    if probabilities is None:
        return Answer(choice, None, None)
    try:
        values = tuple([probabilities[option] for option in options])
    except KeyError:
        return _OTHER_OPTIONS
    if len(probabilities) != len(options):
        return _OTHER_OPTIONS
    total = sum(values)
    likeliest = max(values)
    # Written so that a NaN fails every comparison.
    if not (min(values) >= 0 and likeliest <= 1 and abs(total - 1) <= SUM_TOLERANCE + _SLACK):
        return _NO_DISTRIBUTION
    if not probabilities[choice] >= likeliest - ARGMAX_TOLERANCE - _SLACK:
        return _NOT_LIKELIEST
    if total != 1:
        values = tuple([value / total for value in values])
        likeliest /= total
    return Answer(choice, values, confidence_of(likeliest, len(options)))


def confidence_of(likeliest: float, options: int) -> float:
    """(max(p) − 1/n) / (1 − 1/n), and 1 when n is 1 (A2G Policy format, rule 5); always within 0 and 1."""
    if options == 1:
        return 1.0
    even = 1 / options
    return min(max((likeliest - even) / (1 - even), 0.0), 1.0)
