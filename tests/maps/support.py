"""What the tests of weight maps share: tables over arrays of NumPy, made by plain NumPy."""

from __future__ import annotations

import numpy as np

import tensorferry as ferry

LLAMA = """
drop = ["*.inv_freq"]

[dims]
h = "num_attention_heads"
kv = "num_key_value_heads"
hd = ["head_dim", "hidden_size/num_attention_heads"]

[map]
"tok_embeddings.weight" = "model.embed_tokens.weight"
"layers.{i}.attn.q_proj.weight" = "model.layers.{i}.self_attn.q_proj.weight : (h 2 hd/2) d -> (h hd/2 2) d"
"layers.{i}.attn.k_proj.weight" = "model.layers.{i}.self_attn.k_proj.weight : (kv 2 hd/2) d -> (kv hd/2 2) d"
"layers.{i}.attn.v_proj.weight" = "model.layers.{i}.self_attn.v_proj.weight"
"layers.{i}.mlp.w13" = { concat = ["model.layers.{i}.mlp.gate", "model.layers.{i}.mlp.up"], axis = 0 }
"norm.scale" = "model.norm.weight"
"""
CONFIG = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 24}


def llama(layers=3, seed=0):
    """Weights for `LLAMA`, and what it makes of them by plain NumPy."""
    random = np.random.default_rng(seed)
    h, kv, hd, d = 4, 2, 6, 24
    source = {"model.embed_tokens.weight": random.random((7, d), "float32")}
    expected = {"tok_embeddings.weight": source["model.embed_tokens.weight"]}
    for i in range(layers):
        before, after = f"model.layers.{i}.", f"layers.{i}."
        source[f"{before}self_attn.rotary.inv_freq"] = random.random(3, "float32")
        for name, heads in (("q", h), ("k", kv)):
            weight = random.random((heads * hd, d), "float32")
            source[f"{before}self_attn.{name}_proj.weight"] = weight
            turned = weight.reshape(heads, 2, hd // 2, d).transpose(0, 2, 1, 3)
            expected[f"{after}attn.{name}_proj.weight"] = turned.reshape(heads * hd, d)
        value = random.random((kv * hd, d), "float32")
        source[f"{before}self_attn.v_proj.weight"] = value
        expected[f"{after}attn.v_proj.weight"] = value
        gate, up = random.random((2, 10, d), "float32")
        source[f"{before}mlp.gate"], source[f"{before}mlp.up"] = gate, up
        expected[f"{after}mlp.w13"] = np.concatenate([gate, up])
    source["model.norm.weight"] = expected["norm.scale"] = random.random(d, "float32")
    return source, expected


def table(text):
    """A table of these lines below [map], or of a whole text."""
    return ferry.WeightMap.parse(text if "[map]" in text else f"[map]\n{text}")


def assert_made(found, expected):
    """Names, dtypes, shapes and bits are those expected."""
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        assert found[name].tobytes() == array.tobytes(), name


def kinds(findings):
    """The kind and the tensor of each finding."""
    return [(each.kind, each.tensor) for each in findings]
