"""What is read of PyTorch tensors in C is what is read of them in Python, or it is left to Python."""

from __future__ import annotations

import gc
import itertools
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import examples, peak_of
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

import tensorferry as ferry
from tensorferry.backends import registry
from tensorferry.backends.torch import quick
from tensorferry.backends.torch.quick import (
    are_alike,
    array_in_python,
    environment_in_python,
    signature_in_python,
)
from tensorferry.core.dtypes import DLPACK_CODES
from tensorferry.core.signature import COMPACT, places_by
from tensorferry.host import memory
from tensorferry.host.extensions import c_extension
from tensorferry.host.numpy_dtypes import numpy_dtype

BACKEND = registry.ready("torch")
pytestmark = [
    pytest.mark.quick,
    pytest.mark.skipif(
        c_extension("backends.torch._tensors") is None
        or not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"),
        reason="no tensors are read in C: torch before 2.10, no extension, or TENSORFERRY_NO_EXTENSION is set",
    ),
]
# When complex32, nested tensors and others are made.
WARNS = pytest.mark.filterwarnings("ignore::UserWarning")
IN_PYTHON, ARRAY_IN_PYTHON = signature_in_python(BACKEND), array_in_python(BACKEND)


def freed():
    x = torch.arange(6.0)
    x.untyped_storage().resize_(0)
    return x


def narrow_integers():
    return [
        torch.empty(4, dtype=getattr(torch, name))
        for name in ("uint1", "uint4", "uint7", "int4")
        if hasattr(torch, name)
    ]


def odd_tensors():
    """Tensors of every kind that PyTorch has, most of which are not ordinary."""
    x, z = torch.arange(24.0).reshape(2, 3, 4), torch.zeros(3, dtype=torch.complex64)
    return [
        x,
        torch.tensor(1.5),
        torch.zeros(0, 3),
        x[:0],
        x[:, 1:, ::2],
        x.permute(2, 0, 1),
        x.transpose(0, 1),
        x[:1],
        x[:, :1, :1],
        torch.zeros(1).expand(3),
        torch.zeros(2, 1).expand(2, 3),
        torch.arange(9.0).unfold(0, 4, 2),
        torch.as_strided(torch.arange(9.0), (2, 3), (3, 2)),
        torch.zeros([1] * 12),
        torch.zeros([2] * 12).permute(*reversed(range(12))),
        torch._neg_view(x),
        z,
        z.conj(),
        z.conj().imag,
        z.conj().imag.data,
        x.clone().requires_grad_(),
        x.clone().requires_grad_() * 2,
        torch.nn.Parameter(x),
        torch.nn.Parameter(x, requires_grad=False),
        torch.nn.Parameter(x.permute(2, 0, 1)),
        torch.empty(3, device="meta"),
        torch.nn.Parameter(torch.empty(3, device="meta")),
        torch.eye(3).to_sparse(),
        torch.eye(3).to_sparse_csr(),
        torch.eye(3).to_mkldnn(),
        torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
        torch._efficientzerotensor(3),
        torch._lazy_clone(x),
        torch._to_functional_tensor(x.clone()),
        freed(),
        torch.zeros(3, dtype=torch.complex32),
        *narrow_integers(),
        *(torch.zeros(3, dtype=dtype) for dtype in BACKEND.names),
        *(torch.zeros(3, 2, dtype=dtype).t() for dtype in BACKEND.names),
        *(torch.zeros(70, dtype=torch.uint8)[at : at + 64].view(torch.float64) for at in (0, 0)),
        *(torch.zeros(40, dtype=torch.int16)[at:] for at in range(4)),
    ]


@pytest.fixture(
    params=[False, True], ids=["at first", "after a tensor that could not be described"]
)
def reader(request):
    """A reader that has not yet failed to describe a tensor, and one that has."""
    made = quick.reader(BACKEND, IN_PYTHON, ARRAY_IN_PYTHON)
    if request.param:
        made.signature(torch.empty(3, device="meta"))
    return made


def outcome(call, x):
    try:
        return call(x)
    except (RuntimeError, TypeError, KeyError) as error:
        return type(error)


def facts(array):
    if not isinstance(array, np.ndarray):
        return array
    return memory.address(array), array.shape, array.strides, array.dtype, array.flags.num


@WARNS
class TestOneTensor:
    def test_it_has_the_same_signature(self, reader):
        for x in odd_tensors():
            assert outcome(reader.signature, x) == outcome(IN_PYTHON, x)

    def test_it_becomes_the_same_array(self, reader):
        for x in odd_tensors():
            assert facts(outcome(reader.array, x)) == facts(outcome(ARRAY_IN_PYTHON, x)), (
                x.dtype,
                x.layout,
            )

    def test_other_objects_have_no_signature(self, reader):
        class Own(torch.Tensor):
            """A subclass, whose attributes may be its own."""

        for x in (3, None, "x", np.zeros(3), torch.zeros(3).as_subclass(Own), torch.Size([3])):
            assert reader.signature(x) is None
            assert reader.alike([x]) is None
            assert reader.alike([torch.zeros(3), x]) is None

    @settings(max_examples=examples(300))
    @given(
        st.lists(st.integers(1, 4), max_size=5),
        st.integers(0, 3),
        st.data(),
    )
    def test_views_of_any_strides(self, shape, offset, data):
        reader = quick.reader(BACKEND, IN_PYTHON, ARRAY_IN_PYTHON)
        strides = [data.draw(st.integers(0, 12)) for _ in shape]
        x = torch.as_strided(torch.arange(300.0), shape, strides, offset)
        assert reader.signature(x) == IN_PYTHON(x)
        ours, theirs = reader.array(x), ARRAY_IN_PYTHON(x)
        if ours is None:
            assert theirs is None
        else:
            assert facts(ours) == facts(theirs)

    def test_every_dtype_of_pytorch(self, reader):
        """DLPack has one code for some of them; each is taken for itself, or left to Python."""
        dtypes = {each for each in vars(torch).values() if isinstance(each, torch.dtype)}
        made = {}
        for dtype in dtypes:
            try:
                made[dtype] = torch.empty(8, dtype=dtype)
            except RuntimeError:
                continue  # of a quantized tensor
        assert made.keys() >= BACKEND.names.keys()
        for dtype, x in made.items():
            assert reader.alike([x, x]) is (dtype if dtype in BACKEND.names else None)
            assert reader.signature(x) == IN_PYTHON(x)


class Recording(TorchFunctionMode):
    """Sees each attribute that is read, and changes a tensor meanwhile."""

    def __init__(self, x):
        super().__init__()
        self.x = x

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if len(self.x.shape) == 1:
            self.x.resize_(4, 4)
        return result


class TestModes:
    @pytest.mark.filterwarnings("ignore:Accessing the data pointer")
    def test_a_mode_that_fakes(self, reader):
        from torch._subclasses import FakeTensorMode

        x = torch.arange(4.0)
        with FakeTensorMode(allow_non_fake_inputs=True):
            assert reader.signature(x) is None
            assert reader.grouped([x], 64) is None
            assert reader.array(x) is None

    def test_tangents(self, reader):
        with forward_ad.dual_level():
            assert reader.signature(torch.zeros(3)) is None
            assert reader.grouped([torch.zeros(3)], 64) is None
        assert reader.signature(torch.zeros(3)) is not None

    def test_functions_of_torch_func(self, reader):
        seen = []

        def look(x):
            seen.append((reader.signature(x), outcome(reader.array, x), reader.alike([x])))
            return x * 2

        torch.vmap(look)(torch.zeros(3, 2))
        torch.func.grad(lambda x: look(x).sum())(torch.zeros(3))
        assert [each[0] for each in seen] == [each[2] for each in seen] == [None, None]
        assert not any(isinstance(each[1], np.ndarray) for each in seen)

    def test_inference(self, reader):
        with torch.inference_mode():
            x = torch.arange(3.0)
            assert reader.signature(x) == IN_PYTHON(x)
            assert reader.array(x).tolist() == [0, 1, 2]

    def test_code_that_runs_in_between(self, reader):
        """A tensor that grows while it is looked at, by a mode that sees it: no freed memory is read."""
        for name in ("signature", "array"):
            x = torch.arange(9.0)
            with Recording(x):
                found = outcome(getattr(reader, name), x)
            assert name == "signature" or found is None or isinstance(found, (np.ndarray, type))


class TestNumbers:
    """A tensor as a list: what is read in C is what is read in Python, or nothing."""

    @WARNS
    def test_they_are_those_of_python(self, reader):
        in_python, read = quick.numbers_in_python(BACKEND), 0
        for x in odd_tensors():
            found, expected = outcome(reader.numbers, x), outcome(in_python, x)
            # An exception says that the fast path is not for this tensor, as None does.
            assert repr(found) == repr(expected) or (
                found is None and isinstance(expected, (type, type(None)))
            )
            read += isinstance(found, (list, float, int))
        assert read > 30

    def test_subnormal_numbers_are_kept(self, reader):
        x = torch.tensor([5e-324, 1.0], dtype=torch.float64)
        assert reader.numbers(x) == [5e-324, 1.0]
        if not torch.set_flush_denormal(True):
            pytest.skip("this processor keeps them in any case")
        try:
            assert reader.numbers(x) is None
        finally:
            torch.set_flush_denormal(False)

    def test_there_are_none_while_a_mode_is_active(self, reader):
        from torch._subclasses import FakeTensorMode

        x = torch.arange(3.0)
        with FakeTensorMode(allow_non_fake_inputs=True):
            assert reader.numbers(x) is None
        assert reader.numbers(x) == [0.0, 1.0, 2.0]
        assert reader.numbers("x") is None


class TestManyTensors:
    def many(self):
        return [
            *(torch.zeros(3, index) for index in range(1, 5)),
            *(torch.zeros(2, dtype=dtype) for dtype in BACKEND.names if not dtype.is_complex),
            torch.zeros(3, 4).t(),
            torch.nn.Parameter(torch.zeros(3)),
            torch.zeros(3, requires_grad=True),
            *(torch.zeros(40, dtype=torch.int16)[at:] for at in range(20)),
            torch.zeros(3, 5),
        ]

    @pytest.mark.parametrize("modulo", [1, 16, 64])
    def test_they_are_grouped_by_their_signatures(self, reader, modulo):
        tensors = self.many()
        expected = [IN_PYTHON(x) for x in tensors]
        expected = [
            each if each[3] != "compact" else (*each[:4], each[4] % modulo, each[5])
            for each in expected
        ]
        found = reader.grouped(tensors, modulo)
        assert found == {key: [*places] for key, places in places_by(expected).items()}
        assert len(found) > 16

    @WARNS
    @pytest.mark.parametrize("modulo", [1, 64])
    def test_signatures_of_several_are_equal_as_the_signatures_are(self, reader, modulo):
        """Equal bytes only for equal signatures in the same order; nothing, if one is in doubt."""
        tensors = [*self.many(), *odd_tensors()]

        def told(x):
            kind, dtype, rank, layout, address, *rest = IN_PYTHON(x)
            return kind, dtype, rank, layout, address % modulo, *rest

        found = {id(x): reader.signatures([x], modulo) for x in tensors}
        assert all(reader.signatures([x], modulo) == found[id(x)] for x in tensors)
        for x, other in itertools.product(tensors, tensors):
            mine, theirs = found[id(x)], found[id(other)]
            both = reader.signatures([x, other], modulo)
            if mine is None or theirs is None:
                assert both is None
                continue
            assert IN_PYTHON(x) is not None
            assert (mine == theirs) is (told(x) == told(other))
            assert (both == reader.signatures([x, x], modulo)) is (mine == theirs)
        assert sum(each is not None for each in found.values()) > 40
        assert reader.signatures([], modulo) != reader.signatures([torch.zeros(3)], modulo)
        assert reader.signatures(["x"], modulo) is None
        with forward_ad.dual_level():
            assert reader.signatures([torch.zeros(3)], modulo) is None

    def test_one_without_a_signature(self, reader):
        for odd in (
            torch.zeros(0),
            torch.empty(3, device="meta"),
            torch.zeros(3, dtype=torch.complex64),
            "x",
        ):
            assert reader.grouped([torch.zeros(3), odd, torch.zeros(3)], 64) is None
        assert reader.grouped([], 64) == {}

    @WARNS
    def test_alike(self, reader):
        for x, other in itertools.product(odd_tensors(), odd_tensors()):
            if x.is_nested or other.is_nested:
                assert reader.alike([x, other]) is None
            else:
                assert reader.alike([x, other]) is are_alike(BACKEND, [x, other]), (
                    x.dtype,
                    other.dtype,
                )

    @WARNS
    def test_together(self, reader):
        """The signature of each, if it is one, and there is no gap; the shapes must be equal too."""
        for x, other in itertools.product(odd_tensors(), odd_tensors()):
            signatures = [IN_PYTHON(x), IN_PYTHON(other)]
            found = reader.together([x, other, x])
            plain = None not in signatures and COMPACT in signatures[0] and x.dim() <= 8
            if not plain or x.shape != other.shape:
                assert found is None
                continue
            first, second = ((*each[:4], 0, *each[5:]) for each in signatures)
            assert found == (first if first == second else None)
            assert reader.together((x,)) == first
        assert reader.together([]) is None
        assert reader.together([torch.zeros(3), "x"]) is None

    @WARNS
    def test_join(self, reader):
        """The bits of each, one after the other, in memory of their own; graphs do not matter."""
        for x, other in itertools.product(odd_tensors(), odd_tensors()):
            signatures = [IN_PYTHON(x), IN_PYTHON(other)]
            made = reader.join([x, other, x])
            plain = None not in signatures and signatures[0][1] == signatures[1][1]
            plain = plain and all(COMPACT in each for each in signatures)
            if not plain or x.shape != other.shape or x.dim() > 8:
                assert made is None
                continue
            arrays = [ARRAY_IN_PYTHON(each) for each in (x, other, x)]
            assert made.tobytes() == b"".join(each.tobytes() for each in arrays)
            assert (made.dtype, made.shape) == (arrays[0].dtype, (3, *x.shape))
            assert made.flags.writeable
            assert not any(np.shares_memory(made, each) for each in arrays)
        assert reader.join([]) is None
        for odd in (
            "x",
            None,
            torch.zeros(3, 1),
            torch.zeros(4),
            torch.zeros(3).double(),
            np.zeros(3),
        ):
            assert reader.join([torch.zeros(3), odd]) is None
            assert reader.join([odd, torch.zeros(3)]) is None

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.float32])
    def test_code_that_runs_while_they_are_joined(self, reader, dtype):
        """Tensors that change while they are looked at, by a mode that sees it: no freed memory is read."""
        for grown in range(4):
            tensors = [torch.ones(1 << 12, dtype=dtype) for _ in range(4)]
            with Recording(tensors[grown]):
                made = outcome(reader.join, tensors)
                found = outcome(reader.together, tensors)
            assert not isinstance(made, np.ndarray) or (made == 1).all()
            assert found is None or isinstance(found, (tuple, type))

    def test_memory_of_another_size_is_not_written(self):
        """Whatever is allocated for them."""
        tensors = [torch.zeros(3), torch.zeros(3)]
        for shape in ((5,), (7,), (2, 2)):
            other = np.full(shape, 9, np.float32)
            assert made_with(allocate=lambda *_, other=other: other).join(tensors) is None
            assert (other == 9).all()
        with pytest.raises(LookupError, match="not today"):
            made_with(allocate=fail).join(tensors)
        with pytest.raises(TypeError):
            made_with(allocate=lambda *_: None).join(tensors)
        with pytest.raises(ValueError, match="read-only"):
            made_with(allocate=lambda *_: np.frombuffer(bytes(24), "f4")).join(tensors)

    @pytest.mark.unwatched  # a hint that is pasted meanwhile meets another list each time
    def test_a_list_that_another_thread_changes(self, reader):
        tensors, going = [torch.zeros(3) for _ in range(200)], True

        def change():
            while going:
                tensors.clear()
                tensors.extend(torch.zeros(3) for _ in range(200))

        thread = threading.Thread(target=change)
        thread.start()
        try:
            for _ in range(300):
                found = reader.grouped(tensors, 64)
                assert found is None or sum(map(len, found.values())) in range(201)
                assert reader.alike(tensors) in (torch.float32, None)
                made = reader.join(tensors)
                assert made is None or made.shape in ((count, 3) for count in range(201))
        finally:
            going = False
            thread.join()


def test_a_tensor_is_looked_at_first_after_one_that_could_not_be_described():
    """Such an exception takes a millisecond, so it must not occur for each tensor."""
    looked = []

    def has_address(x):
        looked.append(x)
        return x.device.type == "cpu"

    made = made_with(has_address=has_address)
    ordinary, meta = torch.zeros(3), torch.empty(3, device="meta")
    made.signature(ordinary)
    assert looked == []
    for _ in range(3):
        assert made.signature(meta) is None
    assert made.signature(ordinary) == IN_PYTHON(ordinary)
    assert [x is meta for x in looked] == [True, True, False]


def fail(*_):
    raise LookupError("not today")


def made_with(**changed):
    rows = tuple(
        (
            *DLPACK_CODES[name],
            dtype,
            *BACKEND.exported.get(dtype, (None, None)),
            *(False, True, False, True),
        )
        for dtype, name in BACKEND.names.items()
        if name in DLPACK_CODES
    )
    arguments = {
        "exchange": torch.Tensor.__dlpack_c_exchange_api__,
        "rows": rows,
        "kinds": (torch.Tensor, torch.nn.Parameter),
        "settings": (torch.get_default_dtype, torch.is_grad_enabled),
        "modes": BACKEND.modes,
        "forward": forward_ad,
        "is_negative": torch.Tensor.is_neg,
        "has_address": lambda _: True,
        "array_type": np.ndarray,
        "set_flags": np.ndarray.setflags,
        "compact": "compact",
        "tracing": BACKEND.tracing,
        "view": torch.Tensor.view,
        "to_numpy": torch.Tensor.numpy,
        "to_list": torch.Tensor.tolist,
        "view_as": np.ndarray.getfield,
        "numpy_dtype": numpy_dtype,
        "allocate": lambda shape, dtype: np.empty(shape, str(dtype).removeprefix("torch.")),
        "signature": IN_PYTHON,
        "array": ARRAY_IN_PYTHON,
        "lowest": memory.LOWEST,
        "header": memory.HEADER,
    }
    return c_extension("backends.torch._tensors").Reader(**arguments | changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"exchange": None},
        {"exchange": 3},
        {"rows": [(2, 32, torch.float32, None, None, False, True, False, True)]},
        {"rows": ((2, 32),)},
        {"rows": ((2, 32, torch.float32, None, None, False, True, False, True),) * 65},
        {"kinds": (torch.Tensor,)},
        {"settings": None},
        {"lowest": "x"},
        {"other": 1},
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(changed):
    with pytest.raises((TypeError, ValueError)):
        made_with(**changed)


def test_no_reader_without_arguments():
    with pytest.raises(TypeError):
        c_extension("backends.torch._tensors").Reader()
    with pytest.raises(TypeError):
        c_extension("backends.torch._tensors").Reader(1)


def test_settings_are_read_each_time():
    made = made_with()
    assert made.environment() == (torch.float32, True)
    with torch.no_grad():
        assert made.environment() == (torch.float32, False)
    assert BACKEND.quick.reader.environment() == environment_in_python(BACKEND)()
    assert made_with(settings=()).environment() == ()
    with pytest.raises(LookupError, match="not today"):
        made_with(settings=(torch.is_grad_enabled, fail)).environment()


def test_an_exception_of_a_function_is_raised():
    x = torch.zeros(3)
    for name, call in (
        ("modes", "signature"),
        ("is_negative", "signature"),
        ("signature", "signature"),
    ):
        rows = ((2, 32, x.dtype, None, None, False, name != "signature", True, True),)
        made = made_with(**{name: fail, "rows": rows})
        with pytest.raises(LookupError, match="not today"):
            getattr(made, call)(x)
        with pytest.raises(LookupError, match="not today"):
            made.grouped([x], 64)
        if name != "signature":
            with pytest.raises(LookupError, match="not today"):
                made.together([x])
            with pytest.raises(LookupError, match="not today"):
                made.join([x])
    with pytest.raises(LookupError, match="not today"):
        made_with(to_numpy=fail).array(x)
    for name in ("modes", "to_list"):
        with pytest.raises(LookupError, match="not today"):
            made_with(**{name: fail}).numbers(x)
    half = torch.zeros(3, dtype=torch.bfloat16)
    for name in ("tracing", "view", "to_numpy", "view_as"):
        with pytest.raises(LookupError, match="not today"):
            made_with(**{name: fail}).array(half)
    with pytest.raises(LookupError, match="not today"):
        made_with(set_flags=fail).array(x.requires_grad_())


def test_an_array_over_other_memory_is_not_returned():
    other = np.zeros(3, np.float32)
    made = made_with(to_numpy=lambda _: other)
    assert made.array(torch.zeros(3)) is None


@WARNS
def test_nothing_is_kept(reader):
    """References to tensors, dtypes, types and functions are given back, and no memory is kept."""
    tensors = [*odd_tensors(), torch.zeros(3, requires_grad=True)]
    plain = [torch.zeros(3) for _ in range(50)]
    objects = [
        *tensors,
        *plain,
        *BACKEND.names,
        torch.Tensor,
        torch.nn.Parameter,
        None,
        True,
        False,
        np.ndarray,
    ]

    def all_of_it():
        for x in tensors:
            for call in (
                reader.signature,
                reader.array,
                reader.numbers,
                lambda x: reader.alike([x]),
                lambda x: reader.grouped([x], 64),
                lambda x: reader.together([x, x]),
                lambda x: reader.join([x, x]),
                lambda x: reader.signatures([x, x], 64),
            ):
                outcome(call, x)
        reader.grouped(plain, 64)
        reader.alike(plain)
        reader.together(plain)
        reader.join(plain)
        reader.signatures(plain, 64)

    all_of_it()
    gc.collect()
    before = list(map(sys.getrefcount, objects))
    for _ in range(20):
        all_of_it()
    gc.collect()
    after = list(map(sys.getrefcount, objects))
    grown = [
        (obj if isinstance(obj, type) else type(obj), b - a)
        for obj, a, b in zip(objects, before, after, strict=True)
        if b - a >= 20
    ]
    assert grown == []
    held, _ = peak_of(lambda: [reader.grouped(plain, 64) and None for _ in range(50)])
    assert held < 50_000


def test_a_reader_gives_back_its_arguments():
    def modes():
        return 0

    before = sys.getrefcount(modes)
    made = made_with(modes=modes)
    assert sys.getrefcount(modes) > before
    del made
    with pytest.raises(TypeError):
        made_with(modes=modes, kinds=())
    gc.collect()
    assert sys.getrefcount(modes) == before


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32])
def test_a_negative_bit_is_part_of_the_signature(dtype):
    """PyTorch's own function gives integers one too.

    Such a tensor does not take the steps of a plain one.
    """
    plain = torch.arange(4).to(dtype)
    negative = torch._neg_view(plain)
    assert (
        BACKEND.quick.reader.signature(negative)
        == IN_PYTHON(negative)
        != BACKEND.quick.reader.signature(plain)
    )
    for x in (plain, negative, plain):
        assert ferry.to_numpy(x).tolist() == x.tolist()
        assert ferry.convert_tree([x, x.clone()], "numpy")[0].tolist() == x.tolist()
