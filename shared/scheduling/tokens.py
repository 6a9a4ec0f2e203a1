"""Tokens and money of one provider call: estimates and exact costs. Pure.

Money is integer nano-dollars; prices are pico-dollars a token, so products are exact and only the last step
rounds, up: what is spent is never understated.
"""

CHARS_PER_TOKEN = 4  # A2G Manifest, "Token budget": the reference service's rule
_PICO_PER_NANO = 1_000


def estimated_tokens(chars: int) -> int:
    """Tokens of a text of `chars` characters, rounded up."""
    return -(-chars // CHARS_PER_TOKEN)


def cost_nanousd(*charges: tuple[int, int]) -> int:
    """Cost in nano-dollars of charges, each (tokens, pico-dollars a token); the sum is rounded up."""
    return -(-sum(tokens * price for tokens, price in charges) // _PICO_PER_NANO)
