"""The picture of memory: what it draws is what an independent count of the bytes says, for tensors of any layout."""

from __future__ import annotations

import re
from itertools import product
from xml.etree import ElementTree as ET

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support import examples

import tensorferry as ferry
from tensorferry import TensorInfo
from tensorferry.core.dtypes import find
from tensorferry.core.layout import size_text
from tensorferry.planning.pictures import canvas
from tensorferry.planning.pictures.canvas import WORDS, Words
from tensorferry.planning.pictures.memory import memory_picture
from tensorferry.planning.pictures.touched import Touched

SVG = "{http://www.w3.org/2000/svg}"
BYTE = {64: 10, 32: 9}
LEFT = 34


def drawn(plan, **how):
    """A picture, parsed; it says what it is in words too, and nothing in it could be another's on one page."""
    text = memory_picture(plan, **how)
    assert text == memory_picture(plan, **how)
    root = ET.fromstring(text)  # noqa: S314 - made here
    assert not [each for each in root.iter() if each.get("id")]
    assert root.get("role") == "img"
    assert root.get("aria-label") == f"{root.find(f'{SVG}title').text}. {told(root)}"
    return root


def words(root):
    return [each.text for each in root.iter(f"{SVG}text")]


def told(root):
    return root.find(f"{SVG}desc").text


def by_hand(info):
    """The bytes that a tensor touches, element by element, from the start of the line of the lowest one."""
    itemsize = find(info.dtype).itemsize
    starts = [
        sum(at * step for at, step in zip(index, info.strides, strict=True))
        for index in product(*map(range, info.shape))
    ]
    low = min(starts)
    base = (info.misalignment + low) % 64
    return {base + start - low + byte for start in starts for byte in range(itemsize)}


def rectangles(root, kind):
    """Left, top and width of what is drawn of a kind."""
    for path in root.iter(f"{SVG}path"):
        if path.get("class") == kind:
            for x, y, wide in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v", path.get("d")):
                yield float(x), float(y), float(wide)


def bytes_drawn(root, kind, columns):
    """The bytes of a strip that are drawn as touched; the rows are in the order of memory."""
    cells = list(rectangles(root, kind))
    rows = sorted(
        float(row.get("y")) for row in root.iter(f"{SVG}rect") if row.get("class") == "row"
    )
    belongs = [
        row for row in rows if min(y for _, y, _ in cells) - 1 <= row <= max(y for _, y, _ in cells)
    ]
    first = belongs[0]
    # Rows above the first cell are empty ones of the same strip: narrow rows begin with their
    # 64-byte line.
    found = set()
    for x, y, wide in cells:
        row = round((y - 1 - first) / 26)
        start, stop = (x - 0.5 - LEFT) / BYTE[columns], (x + 0.5 + wide - LEFT) / BYTE[columns]
        assert start == int(start)
        assert stop == int(stop)
        assert 0 <= start < stop <= columns
        found |= {row * columns + byte for byte in range(int(start), int(stop))}
    return found


@st.composite
def layouts(draw, longest=5):
    """Tensors with elements, laid out in any way in a few lines of memory."""
    dtype = draw(
        st.sampled_from(["int8", "float16", "float32", "float64", "complex128", "bfloat16"])
    )
    itemsize = find(dtype).itemsize
    shape = draw(st.lists(st.integers(1, longest), max_size=3))
    steps = [
        draw(st.integers(-6, 6)) * draw(st.sampled_from([itemsize, itemsize, 1])) for _ in shape
    ]
    misalignment = draw(st.integers(0, 63))
    return TensorInfo("torch", shape, dtype, strides=steps, misalignment=misalignment)


@settings(max_examples=examples(300))
@given(info=layouts(), columns=st.sampled_from([64, 32]))
def test_the_bytes_that_are_drawn_are_those_that_are_touched(info, columns):
    """Each byte, whatever the strides: source and result are one strip, as they are one memory."""
    touched = by_hand(info)
    assume(max(touched) < 256)
    plan = ferry.explain(info, "torch")
    assert plan.shares_memory
    root = drawn(plan, width=columns)
    skipped = min(touched) // columns * columns
    assert bytes_drawn(root, "shared", columns) == {byte - skipped for byte in touched}
    assert f"the same {len(touched):,} byte" in told(root)
    assert list(rectangles(root, "source")) == list(rectangles(root, "result")) == []


@settings(max_examples=examples(300))
@given(info=layouts(), window=st.tuples(st.integers(0, 300), st.integers(0, 300)))
def test_what_is_counted_is_what_there_is(info, window):
    """Of any window of the memory, and the elements in it with the first of them in the order of reading."""
    itemsize = find(info.dtype).itemsize
    memory, lowest = Touched(info.shape, info.strides, itemsize), min(by_hand(info))
    touched = {byte - lowest for byte in by_hand(info)}
    start, stop = min(window), max(window)
    assert memory.total == len(touched)
    assert memory.count(start, stop) == len([byte for byte in touched if start <= byte < stop])
    expected = {}
    for index, at in enumerate(product(*map(range, info.shape))):
        where = sum(i * step for i, step in zip(at, info.strides, strict=True)) - memory.low
        if where < stop and where + itemsize > start and start < stop:
            first, many = expected.get(where, (index, 0))
            expected[where] = (first, many + 1)
    assert memory.elements(start, stop) == expected or start == stop


@settings(max_examples=examples(100))
@given(info=layouts(longest=4), pace=st.integers(2000, 9000))
def test_large_memory_is_counted_without_a_bit_for_each_byte(info, pace):
    """Beyond 64 KiB, by runs: the same numbers for every layout whose runs are apart, or that says it cannot tell."""
    itemsize = find(info.dtype).itemsize
    shape, strides = (40, *info.shape), (pace * itemsize, *info.strides)
    memory = Touched(shape, strides, itemsize)
    assume(memory.span > 1 << 16)
    starts = {
        sum(i * step for i, step in zip(at, strides, strict=True))
        for at in product(*map(range, shape))
    }
    touched = {start + byte - memory.low for start in starts for byte in range(itemsize)}
    if memory.exact:
        assert memory.total == len(touched)
        for start in range(0, memory.span, memory.span // 5):
            assert memory.count(start, start + 4000) == len(
                [b for b in touched if start <= b < start + 4000]
            )
    else:
        assert memory.total >= len(touched)


@settings(max_examples=examples(200))
@given(
    shape=st.lists(st.sampled_from([1, 2, 3, 7, 64, 1000, 10**6, 10**9]), max_size=6),
    steps=st.lists(st.integers(-(10**12), 10**12), min_size=6, max_size=6),
    misalignment=st.integers(0, 63),
    dtype=st.sampled_from(["int8", "float32", "complex128"]),
    plain=st.booleans(),
    columns=st.sampled_from([64, 32]),
)
def test_a_picture_is_small_whatever_the_tensor(shape, steps, misalignment, dtype, plain, columns):
    """Not one element is gone through that is not drawn; nothing is drawn beside the picture."""
    strides = None if plain else steps[: len(shape)]
    info = TensorInfo("torch", shape, dtype, strides=strides, misalignment=misalignment)
    for written in (None, "source", "result"):
        root = drawn(ferry.explain(info, "torch", copy=True), width=columns, written=written)
        assert len(ET.tostring(root)) < 60_000
        across, down = map(float, root.get("viewBox").split()[2:])
        for x, y, wide in [
            each for kind in ("source", "result", "written") for each in rectangles(root, kind)
        ]:
            assert x >= 0
            assert x + wide <= across
            assert 0 <= y <= down - 18


@pytest.mark.parametrize(
    ("info", "numbers"),
    [
        (TensorInfo("torch", (2, 3)), "0 1 2 3 4 5"),
        (TensorInfo("torch", (3, 2), strides=(4, 12)), "0 2 4 1 3 5"),
        (TensorInfo("numpy", (4,), strides=(8,)), "0 1 2 3"),
        (TensorInfo("numpy", (4,), strides=(-4,), misalignment=12), "3 2 1 0"),
        (
            TensorInfo("numpy", (4, 3), strides=(0, 4)),
            "0 x4,1 x4,2 x4",
        ),
        (TensorInfo("numpy", (3, 2), strides=(4, 4)), "0,1 x2,3 x2,5"),
    ],
    ids=["plain", "transposed", "every second", "reversed", "broadcast", "windows"],
)
def test_elements_have_the_number_at_which_they_are_read(info, numbers):
    """In the order of memory; where several elements are in one place, the first of them and how many they are."""
    root = drawn(ferry.explain(info, info.framework))
    texts = [each for group in root.iter(f"{SVG}g") for each in group]
    texts.sort(key=lambda each: float(each.get("x")))
    assert [each.text.replace("\N{MULTIPLICATION SIGN}", "x") for each in texts] == numbers.split(
        "," if "," in numbers else " "
    )


def test_one_memory_has_a_name_above_and_below():
    """And who may write is said at each of them, and in words for who does not see."""
    root = drawn(ferry.explain(TensorInfo("torch", (2, 3)), "numpy"))
    assert told(root) == "source and result are the same 24 bytes; both may write."
    texts = words(root)
    assert texts.count("may write") == 2
    assert len([text for text in texts if text.startswith(("source: torch", "result: numpy"))]) == 2
    root = drawn(ferry.explain(TensorInfo("torch", (2, 3), requires_grad=True), "numpy"))
    assert told(root).endswith("only the source may write.")
    assert words(root).count("read-only") == words(root).count("may write") == 1


def test_a_copy_has_an_arrow_with_the_way_of_each_step():
    """Two places, each with its name, and what goes over the bus between them."""
    info = TensorInfo("torch", (1024, 1024), device="cuda:0", requires_grad=True)
    plan = ferry.explain(info, "jax", dtype="bfloat16", device="cpu")
    root = drawn(plan)
    texts = words(root)
    assert texts.index("cuda:0: device memory") < texts.index("2 MiB within device memory")
    assert texts.index("2 MiB within device memory") < texts.index("2 MiB over the bus")
    assert texts.index("2 MiB over the bus") < texts.index("cpu: host memory")
    assert told(root) == (
        "The source is 4,194,304 bytes on cuda:0. It is copied: 2 MiB within device memory, then 2 MiB over the bus. "
        "The result is 2,097,152 bytes on cpu; only the source may write."
    )


@pytest.mark.parametrize("size", [3, 10**6])
@pytest.mark.parametrize("step", [4, 8, -4])
def test_a_write_is_marked_where_it_is_seen(size, step):
    """On the one strip of two sides, or on the strip of the side alone; the first element, wherever it lies."""
    info = TensorInfo("numpy", (size,), strides=(step,), misalignment=20)
    for copy, side, seen in [
        (None, "source", "too"),
        (True, "source", "not"),
        (True, "result", "not"),
    ]:
        plan = ferry.explain(info, "numpy", copy=copy)
        root = drawn(plan, written=side)
        marks = [path for path in root.iter(f"{SVG}path") if path.get("class") == "written"]
        assert len(marks) == (1 if size == 3 else 2)
        assert told(root).endswith(
            f"The first element of the {side} is written: " + told(root).rpartition(": ")[2]
        )
        assert seen in told(root).rpartition(": ")[2]
        zero = next(each for group in root.iter(f"{SVG}g") for each in group if each.text == "0")
        x, y, wide = next(rectangles(root, "written"))
        if side == "source":
            assert x < float(zero.get("x")) < x + wide
            assert y < float(zero.get("y")) < y + 18


@pytest.mark.parametrize(
    ("info", "to", "said"),
    [
        (TensorInfo("jax", (3,)), "numpy", "The source is read-only: nothing is written."),
        (TensorInfo("numpy", (0, 3)), "torch", "The source has no element to write."),
    ],
)
def test_what_cannot_be_written_is_not_marked(info, to, said):
    """It is said instead."""
    root = drawn(ferry.explain(info, to), written="source")
    assert told(root).endswith(said)
    assert not [each for each in root.iter() if each.get("class") == "written"]


@pytest.mark.parametrize(
    ("info", "to", "said"),
    [
        (TensorInfo("python", (2, 3), "float64"), "torch", "6 objects, each in memory of its own"),
        (TensorInfo("torch", (5, 0)), "numpy", "no elements: no bytes"),
        (TensorInfo("torch", ()), "python", "1 object, in memory of its own"),
        (
            TensorInfo("jax", (8, 8), device="cuda", shards=4),
            "numpy",
            "4 parts, each in memory of its own",
        ),
        (TensorInfo("numpy", (3, 4), kind="rows"), "torch", "3 parts, each in memory of its own"),
        (TensorInfo("python", (3, 4), kind="stack"), "torch", "3 parts, each in memory of its own"),
        (TensorInfo("jax", (3,), abstract="traced"), "jax", "no memory: traced"),
        (
            TensorInfo("numpy", (3,), memory_map=True),
            "torch",
            "cpu: a file that is mapped into memory",
        ),
        (TensorInfo("torch", (3,), pinned=True), "numpy", "cpu: page-locked host memory"),
    ],
)
def test_what_is_no_block_of_memory_is_drawn_as_what_it_is(info, to, said):
    """Objects, parts, a file, nothing."""
    assert said in words(drawn(ferry.explain(info, to)))


@pytest.mark.parametrize(("count", "last"), [(1, 0), (6, 5), (40, 11)])
def test_objects_are_numbered(count, last):
    """As many as there is room for."""
    root = drawn(ferry.explain(TensorInfo("python", (count,), "float64"), "torch"))
    groups = [each for each in root.iter(f"{SVG}g") if each.get("class") == "number"]
    texts = [text.text for each in groups for text in each if len(each) == 1]
    assert texts[: last + 1] == [str(number) for number in range(last + 1)]


def test_what_a_plan_says_is_escaped():
    """Nothing that a name can hold is read as XML, nor makes it invalid; nothing is wider than there is room."""
    info = TensorInfo("torch", (3,), kind="<b>&\x00\ud800'\"" + "W" * 500)
    plan = ferry.explain(info, "numpy")
    assert max(len(text) for text in words(drawn(plan, width=32))) < 60
    memory_picture(plan).encode()


@pytest.mark.parametrize("how", [{"width": 48}, {"written": "target"}])
def test_what_cannot_be_asked_for(how):
    """Another width, another side."""
    with pytest.raises(ValueError, match="must be"):
        memory_picture(ferry.explain(TensorInfo("torch", (3,)), "numpy"), **how)


def test_a_page_has_both_widths_and_the_way_of_each_step():
    """A notebook shows the picture that fits, and what each step is and why."""
    plan = ferry.explain(
        TensorInfo("numpy", (1000,), "float64"), "torch", device="cuda:0", dtype="float32"
    )
    root = ET.fromstring(plan._repr_html_().replace("&rarr;", "to"))  # noqa: S314 - made here
    across = [svg.get("viewBox").split()[2] for svg in root.iter(f"{SVG}svg")]
    assert len(across) == 2
    assert float(across[1]) <= 344 < float(across[0])
    assert not [each for each in root.iter() if each.get("id")]
    steps = [["".join(cell.itertext()) for cell in row.iter("td")] for row in root.iter("tr")][1:]
    assert [row[1] for row in steps] == [step.code for step in plan.steps]
    assert [row[2] for row in steps] == [
        "3.91 KiB through host memory",
        "none move",
        "3.91 KiB over the bus",
    ]
    values = ["".join(each.itertext()) for each in root.iter("span")]
    assert values == ["numpy float64[1000] on cpu", "torch float32[1000] on cuda:0"]


def test_sizes():
    """Three digits, and the next unit from 1024 on."""
    texts = {
        0: "0 B",
        999: "999 B",
        1023: "1023 B",
        1024: "1 KiB",
        10**6: "977 KiB",
        1 << 50: "1 PiB",
        1 << 71: "2,048 EiB",
    }
    assert {nbytes: size_text(nbytes) for nbytes in texts} == texts


# -- in other languages ----------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["python", "numpy", "torch"])
@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("written", [None, "source", "result"])
def test_every_word_can_be_in_another_language(source, copy, written):
    """A picture says nothing but what the table says, values apart."""
    info = TensorInfo(source, (40, 4), "float64", requires_grad=source == "torch")
    strange = Words(
        *(
            re.sub(r"(\{\w+\})|[A-Za-z0-9,-]+", lambda found: found[1] or "語", text)
            for text in WORDS
        )
    )
    plan = ferry.explain(info, "numpy", copy=copy)
    root = drawn(plan, words=strange, written=written)
    kept = {
        "python",
        "numpy",
        "torch",
        "ndarray",
        "Tensor",
        "Parameter",
        "list",
        "objects",
        "float64",
        "cpu",
        "numbers",
    }
    kept |= {"KiB", "K", "B", *source.split()}
    said = " ".join(
        [*words(root), told(root), root.get("aria-label"), root.find(f"{SVG}title").text]
    )
    assert set(re.findall(r"[A-Za-z]+[0-9]*", said)) <= kept


@given(
    text=st.text(alphabet="あ漢\u3001\u3002\uff08\uff09가 a1", max_size=40),
    width=st.integers(30, 200),
)
def test_lines_fit_and_lose_nothing(text, width):
    """In any script: no line is wider than there is room, and together they are the text."""
    lines = canvas.fitted_lines(text, width, lines=99)
    assert all(canvas.text_width(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_lines_of_japanese_end_between_letters():
    """And none begins with a comma, or ends with a bracket that opens."""
    assert canvas.fitted_lines("一二三、四五「六」七", canvas.text_width("一二三"), 9) == [
        "一二",
        "三、四",
        "五",
        "「六」",
        "七",
    ]
    assert canvas.fitted_lines("첫 요소가 있는", canvas.text_width("첫 요소")) == [
        "첫",
        "요소가",
        "있는",
    ]


def test_one_byte_is_no_bytes():
    """Words count as people do, in each language that has its own."""
    assert (WORDS.bytes(1), WORDS.bytes(2)) == ("1 byte", "2 bytes")
    assert WORDS.bytes(1_000) == "1,000 bytes"
