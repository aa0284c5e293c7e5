"""Run tensorferry's public conformance suite for array-api-strict: ``pytest test_contract.py``."""

import pytest

from tensorferry import testing


@pytest.mark.parametrize("group", testing.groups("array_api_strict"), ids=str)
def test_it_keeps_the_contract(group):
    assert testing.check(group)
