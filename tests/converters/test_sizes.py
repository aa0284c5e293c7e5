"""From three small models to the size that people have, which is nowhere in memory."""

from __future__ import annotations

import numpy as np
import pytest
from tests.converters.cases import here
from tests.converters.sources import info, named, saved_in

import tensorferry as ferry

pytestmark = pytest.mark.slow

LLAMA_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
}
LLAMA = """
model.embed_tokens.weight 128256 4096
model.layers.{32}.self_attn.q_proj.weight 4096 4096
model.layers.{32}.self_attn.k_proj.weight 1024 4096
model.layers.{32}.self_attn.v_proj.weight 1024 4096
model.layers.{32}.self_attn.o_proj.weight 4096 4096
model.layers.{32}.mlp.gate_proj.weight 14336 4096
model.layers.{32}.mlp.up_proj.weight 14336 4096
model.layers.{32}.mlp.down_proj.weight 4096 14336
model.layers.{32}.input_layernorm.weight 4096
model.layers.{32}.post_attention_layernorm.weight 4096
model.norm.weight 4096
lm_head.weight 128256 4096
"""
MIXTRAL_8X7B = {**LLAMA_8B, "vocab_size": 32000, "num_local_experts": 8}
MIXTRAL = """
model.embed_tokens.weight 32000 4096
model.layers.{32}.self_attn.q_proj.weight 4096 4096
model.layers.{32}.self_attn.k_proj.weight 1024 4096
model.layers.{32}.self_attn.v_proj.weight 1024 4096
model.layers.{32}.self_attn.o_proj.weight 4096 4096
model.layers.{32}.block_sparse_moe.gate.weight 8 4096
model.layers.{32}.block_sparse_moe.experts.{8}.w1.weight 14336 4096
model.layers.{32}.block_sparse_moe.experts.{8}.w2.weight 4096 14336
model.layers.{32}.block_sparse_moe.experts.{8}.w3.weight 14336 4096
model.layers.{32}.input_layernorm.weight 4096
model.layers.{32}.post_attention_layernorm.weight 4096
model.norm.weight 4096
lm_head.weight 32000 4096
"""
QWEN_30B = {
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "vocab_size": 151936,
}
QWEN = """
model.embed_tokens.weight 151936 2048
model.layers.{48}.self_attn.q_proj.weight 4096 2048
model.layers.{48}.self_attn.k_proj.weight 512 2048
model.layers.{48}.self_attn.v_proj.weight 512 2048
model.layers.{48}.self_attn.o_proj.weight 2048 4096
model.layers.{48}.self_attn.q_norm.weight 128
model.layers.{48}.self_attn.k_norm.weight 128
model.layers.{48}.mlp.gate.weight 128 2048
model.layers.{48}.mlp.experts.{128}.gate_proj.weight 768 2048
model.layers.{48}.mlp.experts.{128}.up_proj.weight 768 2048
model.layers.{48}.mlp.experts.{128}.down_proj.weight 2048 768
model.layers.{48}.input_layernorm.weight 2048
model.layers.{48}.post_attention_layernorm.weight 2048
model.norm.weight 2048
lm_head.weight 151936 2048
"""
PHI_MEDIUM = {
    "hidden_size": 5120,
    "intermediate_size": 17920,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "num_key_value_heads": 10,
    "vocab_size": 32064,
}
PHI = """
model.embed_tokens.weight 32064 5120
model.layers.{40}.self_attn.qkv_proj.weight 7680 5120
model.layers.{40}.self_attn.o_proj.weight 5120 5120
model.layers.{40}.mlp.gate_up_proj.weight 35840 5120
model.layers.{40}.mlp.down_proj.weight 5120 17920
model.layers.{40}.input_layernorm.weight 5120
model.layers.{40}.post_attention_layernorm.weight 5120
model.norm.weight 5120
lm_head.weight 32064 5120
"""


def size(width, inner, heads, groups, length, layers, words, experts=3):
    return {
        "hidden_size": width,
        "intermediate_size": inner,
        "moe_intermediate_size": inner - 8,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": length,
        "num_hidden_layers": layers,
        "vocab_size": words,
        "num_experts": experts,
        "num_local_experts": experts,
        "num_experts_per_tok": 2,
    }


SMALL = [
    size(42, 52, 6, 2, 8, 2, 64, 3),
    size(36, 50, 9, 3, 12, 3, 90, 4),
    size(70, 66, 7, 1, 10, 2, 77, 5),
]
RHYMING = [
    size(32, 52, 4, 2, 8, 2, 64),
    size(36, 50, 6, 3, 6, 3, 90),
    size(80, 66, 8, 4, 10, 2, 77),
]
"""Sizes with half as many groups as heads in each."""


def folders(kind, sizes, path):
    return [saved_in(path / str(place), kind, **each) for place, each in enumerate(sizes)]


def real(text):
    return {name: info(each.shape, "bfloat16") for name, each in named(text).items()}


def source_of(made, at):
    """The source of an element of an output, and which element of it that is."""
    found = []
    for move in made.moves:
        rest, of = at - move.target_start, move.source_start
        steps = sorted(
            zip(move.target_steps, move.sizes, move.source_steps, strict=True), reverse=True
        )
        for step, length, by in steps:
            number = min(rest // step, length - 1) if rest >= 0 else 0
            rest -= number * step
            of += number * by
        if not rest:
            found.append((move.source, of))
    assert len(found) == 1
    return found[0]


def places(shape, count=50):
    """Some places of a tensor: its corners, and others."""
    random = np.random.default_rng(len(shape))
    corners = [tuple(0 for _ in shape), tuple(length - 1 for length in shape)]
    return corners + [tuple(int(random.integers(each)) for each in shape) for _ in range(count)]


def in_order(shape, place):
    return int(np.ravel_multi_index(place, shape))


def turned(heads, length):
    """The row of Hugging Face's that is each row of torchtune's."""
    return np.arange(heads * length).reshape(heads, 2, length // 2).swapaxes(1, 2).reshape(-1)


def test_llama_8b(tmp_path):
    here("torchtune")
    import torch
    from tests.converters import by_path, stand_ins

    stand_ins.install()

    from torchtune.models.llama3 import llama3_8b

    table = ferry.WeightMap.trace(
        by_path.llama_to_tune, folders("LlamaForCausalLM", SMALL, tmp_path)
    )
    assert table.complete
    assert len(table.rules) <= 12
    source = real(LLAMA)
    with torch.device("meta"):
        model = llama3_8b()
    target = {name: info(each.shape, "bfloat16") for name, each in model.state_dict().items()}
    assert table.check(source, target, config=LLAMA_8B) == []
    made = table.explain(source, config=LLAMA_8B).tensors
    for kind, heads in (("q", 32), ("k", 8)):
        rows = turned(heads, 128)
        for layer in (0, 31):
            output = made[f"layers.{layer}.attn.{kind}_proj.weight"]
            for row, column in places(output.header.shape):
                name, at = source_of(output, in_order(output.header.shape, (row, column)))
                assert name == f"model.layers.{layer}.self_attn.{kind}_proj.weight"
                assert at == rows[row] * 4096 + column


@pytest.mark.parametrize(
    ("family", "kind", "convert", "text", "config", "most", "names"),
    [
        (
            "mixtral",
            "MixtralForCausalLM",
            "mixtral_to_mlx",
            MIXTRAL,
            MIXTRAL_8X7B,
            13,
            ("block_sparse_moe", {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}),
        ),
        (
            "qwen3_moe",
            "Qwen3MoeForCausalLM",
            "qwen_to_mlx",
            QWEN,
            QWEN_30B,
            15,
            ("mlp", {"gate_proj": "gate_proj", "down_proj": "down_proj", "up_proj": "up_proj"}),
        ),
    ],
    ids=["Mixtral-8x7B", "Qwen3-30B-A3B"],
)
def test_experts(family, kind, convert, text, config, most, names, tmp_path):
    here("mlx-lm")
    from tests.converters import by_path

    table = ferry.WeightMap.trace(getattr(by_path, convert), folders(kind, SMALL, tmp_path))
    assert table.complete
    assert len(table.rules) <= most
    source = real(text)
    assert table.check(source, of_mlx(family, config), config=config) == []
    made = table.explain(source, config=config).tensors
    assert {each.header.dtype for each in made.values()} == {"bfloat16"}
    module, words = names
    for theirs, ours in words.items():
        output = made[f"model.layers.1.{module}.switch_mlp.{theirs}.weight"]
        expert_shape = output.header.shape[1:]
        for expert, *place in places(output.header.shape):
            name, at = source_of(output, in_order(output.header.shape, (expert, *place)))
            assert name == f"model.layers.1.{module}.experts.{expert}.{ours}.weight"
            assert at == in_order(expert_shape, place)


def of_mlx(family, config):
    """The tensors that a model of mlx-lm has: they are made when they are asked for, and they are not."""
    import importlib

    from mlx.utils import tree_flatten

    module = importlib.import_module(f"mlx_lm.models.{family}")
    more = {
        "model_type": family,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "num_experts_per_tok": 2,
        "tie_word_embeddings": False,
        "max_position_embeddings": 4096,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
    }
    model = module.Model(module.ModelArgs.from_dict({**more, **config}))
    return {name: info(each.shape, "bfloat16") for name, each in tree_flatten(model.parameters())}


def test_sizes_that_rhyme(tmp_path):
    """Where each has half as many groups as heads, no size tells which is meant: it is asked for."""
    here("torchtune")
    from tests.converters import by_path

    table = ferry.WeightMap.trace(
        by_path.phi_to_tune, folders("Phi3ForCausalLM", RHYMING, tmp_path)
    )
    assert table.complete
    source = real(PHI)
    wanted = {
        "q_proj": (5120, 0),
        "k_proj": (1280, 5120),
        "v_proj": (1280, 6400),
    }
    unknown = [name for name, ways in table.dims.items() if not ways or ways == ("",)]
    found = table.check(source, config=PHI_MEDIUM)
    made = table.explain(source, config=PHI_MEDIUM).tensors
    if unknown:
        assert found != []
        return
    assert found == []
    for kind, (rows, start) in wanted.items():
        output = made[f"layers.3.attn.{kind}.weight"]
        assert output.header.shape == (rows, 5120)
        for row, column in places(output.header.shape):
            name, at = source_of(output, in_order(output.header.shape, (row, column)))
            assert name == "model.layers.3.self_attn.qkv_proj.weight"
            assert at == (start + row) * 5120 + column
