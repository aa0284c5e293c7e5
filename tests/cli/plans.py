"""Many conversions as `tensorferry explain` is asked for them: what plans show, and what refusals say."""

from __future__ import annotations

from functools import cache

import tensorferry as ferry
from tensorferry.backends.registry import backend_named, backends
from tensorferry.cli.explain import UsageError, hypothetical
from tensorferry.planning.preconditions import refuse_place

_DTYPES = (None, "int64", "complex128", "bfloat16", "float4_e2m1fn", "float64")
_DEVICES = (None, "cuda:1", "mps", "cpu")
_FLAGS = (
    {},
    {"requires_grad": True},
    {"conjugate": True},
    {"swapped": True},
    {"writable": False},
    {"strides": "-16,4"},
)
_ASKED = (
    {},
    {"copy": False},
    {"dtype": "int8"},
    {"dtype": "int8", "casting": "safe"},
    {"dtype": "float64", "casting": "safe", "copy": False},
    {"dtype": "complex64"},
    {"device": "cuda:1"},
    {"device": "mps"},
    {"device": "cpu", "copy": False},
    {"grad": "error"},
)


@cache
def everything():
    """The code of all plans and their steps; the hints on what is asked for, and on the tensor that is described.

    The last is each backend and verb that is a step of one.
    """
    codes, asked, described, verbs = {}, {}, {}, set()
    for source in backends():
        for target, kept in backends().items():
            if not kept.capabilities.dtypes.held:
                continue
            abilities = backend_named(target).capabilities
            options = [
                {name: True}
                for name in sorted(abilities.options.names | abilities.options.finishers)
            ]
            for info in _tensors(source):
                try:
                    refuse_place(info, backend_named(source))
                except ferry.ConversionError as error:
                    described[error.advice] = error
                    continue
                for keywords in (*_ASKED, *options):
                    try:
                        plan = ferry.explain(info, target, **keywords)
                    except ferry.ConversionError as error:
                        asked[error.advice] = error
                    else:
                        codes.update(
                            dict.fromkeys([plan.code, *(step.code for step in plan.steps)])
                        )
                        verbs |= {(step.backend, step.verb) for step in plan.steps}
    return list(codes), asked, described, verbs


def _tensors(framework):
    for dtype in _DTYPES:
        for device in _DEVICES:
            for flags in _FLAGS:
                more = {"strides": None, **flags}
                try:
                    yield hypothetical(framework, shape="3,4", dtype=dtype, device=device, **more)
                except (UsageError, ferry.ConversionError):
                    continue
