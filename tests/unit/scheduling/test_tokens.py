"""Token estimates and exact costs."""

import pytest

from shared.scheduling.tokens import cost_nanousd, estimated_tokens


@pytest.mark.parametrize(("chars", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2), (4_000, 1_000)])
def test_four_characters_are_a_token_and_a_rest_is_one_more(chars: int, tokens: int) -> None:
    assert estimated_tokens(chars) == tokens


def test_costs_are_exact_and_round_up_once() -> None:
    assert cost_nanousd((1_000_000, 42_000)) == 42_000_000  # $0.042
    assert cost_nanousd((1, 1)) == 1
    assert cost_nanousd((1, 400), (1, 600)) == 1
    assert cost_nanousd((1, 400), (1, 601)) == 2
    assert cost_nanousd((0, 42_000)) == 0
    assert cost_nanousd() == 0
