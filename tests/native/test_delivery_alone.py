"""A handle stands for one record: there is none without a batch, and no copy."""

import copy
import pickle
from collections.abc import Callable

import pytest

from aioproducer._native.delivery import BatchResult, Delivery


def test_handle_is_made_by_verbs_alone() -> None:
    """Regression: a handle without a batch crashed the interpreter."""
    with pytest.raises(TypeError, match="made by the methods of a producer"):
        Delivery()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_handle_has_no_copy(copied: Callable[[object], object]) -> None:
    """As with an asyncio future: a copy could be cancelled apart from its original."""
    delivery = BatchResult(None, None).delivery(0, 1)  # type: ignore[arg-type]  # no loop is needed for that

    with pytest.raises(TypeError, match=r"cannot pickle .*Delivery"):
        copied(delivery)
