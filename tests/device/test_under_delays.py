"""With a device that is behind the host nothing is read too early, nothing is given away too early, nothing is left."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")


def _names():
    """The probes, read off their source: importing them makes the device."""
    import ast
    from pathlib import Path

    tree = ast.parse(Path(__file__).with_name("probes.py").read_text())
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [
        each.name for each in found if "probe" in [ast.unparse(by) for by in each.decorator_list]
    ]


@pytest.mark.parametrize("name", _names())
def test_a_device_behind_the_host(sim, name):
    """Each probe, as its docstring says."""
    from tests.device.probes import PROBES

    PROBES[name]()
