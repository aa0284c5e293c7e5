"""Tests for a backend: the conformance suite that this package's own backends pass, and its witnesses.

A backend says what it can hold, adopt and promise; the suite makes thousands of conversions from and
to it, in every layout, dtype and ``copy=``, and judges each on its values, dtype, type, memory (by
address, and by writing on one side and looking on the other), writability, on the source being
unharmed, and on the plan having said all of it before. What must happen is worked out from the
memory contract a second time, apart from the planner.

The suite believes no backend about itself, so it asks a `Witness`: who makes the framework's tensors
and looks at them with the framework's own operations. To test a backend of an outside package:

1. Register the backend: the package's entry point in the group ``tensorferry.backends``, or, without one,
   `tensorferry.backends.registry.register`.
2. Write a witness for it: a name, a module, `Witness.build` (a tensor with these bytes),
   `Witness.place` (where it lies) and `Witness.state` (its metadata); what is not compact, constant
   and on the host says so in the rest.
3. Make it known and run the suite, here with pytest; of the other frameworks, those that are installed take part::

    import pytest
    from tensorferry import testing
    from tensorferry.backends import registry

    registry.register(MyBackend())
    testing.add_witness(MyWitness())


    @pytest.mark.parametrize("group", testing.groups("mine"), ids=str)
    def test_it_keeps_the_contract(group):
        assert testing.check(group)

`tensorferry.testing.strategies` has strategies for hypothesis: dtypes, bytes that are special for a
dtype, blocks of memory in any layout, and tensors in them.
"""

from __future__ import annotations

from .memory import Image, Place, addresses
from .oracle import Verdict, verdict
from .suite import Cell, Finding, Group, NonConformance, check, findings, groups
from .witness import Sample, Witness, add_witness, witness_for, witnesses

__all__ = [
    "Cell",
    "Finding",
    "Group",
    "Image",
    "NonConformance",
    "Place",
    "Sample",
    "Verdict",
    "Witness",
    "add_witness",
    "addresses",
    "check",
    "findings",
    "groups",
    "verdict",
    "witness_for",
    "witnesses",
]
