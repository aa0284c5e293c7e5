"""Tests for a backend: the conformance suite that this package's backends pass, and its witnesses.

The suite makes thousands of conversions from and to a backend, with every layout, dtype and
``copy=``. Of each it checks:

- the values, the dtype and the type of the result, and whether it can be written
- whether memory is shared, by the addresses, and by a write on one side that does or does not show
  on the other
- that the source is unchanged
- that the plan said all of this before

What must happen is computed from the backend's capabilities and the memory contract, without the
planner. What did happen is found out by a `Witness`: it makes and reads the framework's tensors
with the framework's own operations, without the backend. To test a backend of an outside package:

1. Register the backend: the package's entry point in the group ``tensorferry.backends``, or,
   without one, `tensorferry.backends.registry.register`.
2. Write a witness for it: a name, a module, `Witness.build` (a tensor with these bytes),
   `Witness.place` (its address and strides) and `Witness.state` (its metadata). If its tensors can
   be written, or have gaps, override other methods too.
3. Add the witness and run the suite, here with pytest. It uses the other frameworks that are
   installed::

    import pytest
    from tensorferry import testing
    from tensorferry.backends import registry

    registry.register(MyBackend())
    testing.add_witness(MyWitness())


    @pytest.mark.parametrize("group", testing.groups("mine"), ids=str)
    def test_it_keeps_the_contract(group):
        assert testing.check(group)

4. Put the witness into the package, with an entry point in the group ``tensorferry.witnesses`` that
   has the backend's name. `tensorferry doctor` then judges the backend on the machines of the
   people who use it, and `add_witness` is not needed.

`check` raises what is wrong. `outcomes` yields what each conversion had to do, why, and what is wrong
with it, for some dtypes and values of ``copy=`` if you like: the doctor's tables are made of these.

`tensorferry.testing.strategies` has strategies for hypothesis: dtypes, special values, blocks of
memory with any layout, and tensors in them.
"""

from __future__ import annotations

from .memory import Image, Place, addresses
from .oracle import Verdict, verdict
from .suite import Cell, Finding, Group, NonConformance, Outcome, check, groups, outcomes
from .witness import Sample, Witness, add_witness, witness_for, witnesses

__all__ = [
    "Cell",
    "Finding",
    "Group",
    "Image",
    "NonConformance",
    "Outcome",
    "Place",
    "Sample",
    "Verdict",
    "Witness",
    "add_witness",
    "addresses",
    "check",
    "groups",
    "outcomes",
    "verdict",
    "witness_for",
    "witnesses",
]
