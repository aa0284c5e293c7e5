"""The tensors that converters get: of small models that their libraries make, or written down."""

from __future__ import annotations

import re
import tempfile
from functools import lru_cache
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

import tensorferry as ferry

if TYPE_CHECKING:
    from collections.abc import Mapping

SMALL = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
    "head_dim": 6,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
"""Lengths that differ, with ratios that differ."""


class Case(NamedTuple):
    """A converter of a library.

    Args:
        function: Which it is, as it is imported.
        convert: A function that calls it, of a dict of tensors or of the path of a folder.
        source: What gives the headers that it gets; a folder if it takes one.
        reasons: Patterns of the outputs that are no rearrangement, with the reason of each.
        dropped: Patterns of the sources that it leaves out, as a whole or a part.
        most: How many rules its table may have.
    """

    function: str
    convert: object
    source: object
    reasons: Mapping[str, str] = MappingProxyType({})
    dropped: tuple[str, ...] = ()
    most: int = 1000


def info(shape, dtype="float32"):
    return ferry.TensorInfo(framework="torch", shape=tuple(shape), dtype=dtype)


def infos(tensors):
    """What tensors are, by name."""
    return {
        name: info(each.shape, str(each.dtype).rpartition(".")[2]) for name, each in tensors.items()
    }


def config_of(kind, **config):
    """The configuration of a small model of transformers."""
    import transformers

    kinds = {name.lower(): name for name in dir(transformers)}
    family = config.pop("configuration", re.split("For|LMHead|Model", kind)[0])
    if "layer_types" in config:
        config["layer_types"] = config["layer_types"].split()
    return getattr(transformers, kinds[f"{family}config".lower()])(**{**SMALL, **config})


def saved_in(folder, kind, **config):
    """A folder in which transformers saves a small model."""
    import transformers

    getattr(transformers, kind)(config_of(kind, **config)).save_pretrained(folder)
    return folder


@lru_cache
def headers(kind, **config):
    """The tensors of a small model of transformers, as it saves them."""
    with tempfile.TemporaryDirectory() as folder:
        contents = ferry.open(saved_in(folder, kind, **config))
        return {name: info(each.shape, each.dtype) for name, each in contents.tensors.items()}


def named(text, **lengths):
    """Tensors that are written down: `name.{3}.weight 4 5` is three of them, `{2:5}` those from 2."""
    found = {}
    for line in text.strip().splitlines():
        template, *sizes = line.split()
        ends = re.findall(r"\{(?:(\d+):)?(\d+)\}", template)
        counts = [range(int(start or 0), int(stop)) for start, stop in ends]
        pattern = re.sub(r"\{[\d:]+\}", "{}", template)
        shape = [int(lengths.get(each, each)) for each in sizes]
        for numbers in product(*counts):
            found[pattern.format(*numbers)] = info(shape)
    return found


def zeros(source):
    return {
        name: torch.zeros(each.shape, dtype=getattr(torch, each.dtype))
        for name, each in source.items()
    }


def made(convert, source):
    """The tensors that a converter makes, which another takes back."""
    return infos(convert(zeros(source)))


def random_bits(source, seed):
    """NaN of any kind, infinities, -0 and subnormals among ordinary numbers."""
    random = np.random.default_rng(seed)
    found = {}
    for name, each in source.items():
        size = int(np.prod(each.shape, dtype=np.int64))
        kind = getattr(torch, each.dtype)
        raw = torch.from_numpy(np.frombuffer(random.bytes(size * kind.itemsize), np.uint8).copy())
        found[name] = raw.view(kind).reshape(each.shape)
    return found
