"""How the simulator "thinks": probabilities from a question's own content, and nothing else. Pure.

A question is reduced to one of 256 variants by the checksum of its text; each (options, variant) pair gives
one fixed distribution. So an answer depends on no batch-mate, question id, state, time or process, and the
encoded answer of a variant can be kept.
"""

import math
import random
import zlib
from collections.abc import Callable

VARIANTS = 256
_SPREAD = 1.6  # of the logits: some answers clear, some close, as with real models
_DECIMALS = 4

Distribution = list[float]


def variant_of(instructions: bytes, seed: int) -> int:
    """Which of the variants a question is: by its instructions and the checksum `seed` of its options."""
    checksum = zlib.crc32(instructions, seed)
    # A checksum's low bits alone change too regularly with similar texts.
    return (checksum ^ checksum >> 8 ^ checksum >> 16 ^ checksum >> 24) & (VARIANTS - 1)


def distribution(seed: str, count: int) -> Distribution:
    """`count` probabilities of four decimals whose sum is 1; the same for the same seed."""
    source = random.Random(seed)
    weights = [math.exp(source.gauss(0, _SPREAD)) for _ in range(count)]
    total = sum(weights)
    scaled = [int(weight / total * 10**_DECIMALS) for weight in weights]
    scaled[scaled.index(max(scaled))] += 10**_DECIMALS - sum(scaled)
    return [value / 10**_DECIMALS for value in scaled]


def confidence(probabilities: Distribution) -> float:
    """(max(p) − 1/n) / (1 − 1/n), as typed-decision providers define it."""
    count = len(probabilities)
    if count == 1:
        return 1.0
    return round(min(max((max(probabilities) - 1 / count) / (1 - 1 / count), 0.0), 1.0), _DECIMALS)


class AnswerBook:
    """Encoded answers for one set of options: `render(probabilities)`, made once per variant."""

    __slots__ = ("_answers", "_count", "_render", "_seed", "options_chars")

    def __init__(
        self, options: bytes, count: int, options_chars: int, render: Callable[[Distribution], bytes]
    ) -> None:
        self._seed = zlib.crc32(options)
        self._count = count
        self._render = render
        self._answers: list[bytes | None] = [None] * VARIANTS
        self.options_chars = options_chars  # what the options add to the model's input

    def answer(self, instructions: bytes) -> bytes:
        """The encoded answer to a question with these options and these instructions."""
        variant = variant_of(instructions, self._seed)
        known = self._answers[variant]
        if known is None:
            known = self._render(distribution(f"{self._seed}:{variant}", self._count))
            self._answers[variant] = known
        return known
