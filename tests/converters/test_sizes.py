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
DEEPSEEK_V3 = {
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
DEEPSEEK = """
model.embed_tokens.weight 129280 7168
model.layers.{61}.input_layernorm.weight 7168
model.layers.{61}.post_attention_layernorm.weight 7168
model.layers.{61}.self_attn.q_a_proj.weight 1536 7168
model.layers.{61}.self_attn.q_a_layernorm.weight 1536
model.layers.{61}.self_attn.q_b_proj.weight 24576 1536
model.layers.{61}.self_attn.kv_a_proj_with_mqa.weight 576 7168
model.layers.{61}.self_attn.kv_a_layernorm.weight 512
model.layers.{61}.self_attn.kv_b_proj.weight 32768 512
model.layers.{61}.self_attn.o_proj.weight 7168 16384
model.layers.{3}.mlp.gate_proj.weight 18432 7168
model.layers.{3}.mlp.up_proj.weight 18432 7168
model.layers.{3}.mlp.down_proj.weight 7168 18432
model.layers.{3:61}.mlp.gate.weight 256 7168
model.layers.{3:61}.mlp.gate.e_score_correction_bias 256
model.layers.{3:61}.mlp.experts.{256}.gate_proj.weight 2048 7168
model.layers.{3:61}.mlp.experts.{256}.up_proj.weight 2048 7168
model.layers.{3:61}.mlp.experts.{256}.down_proj.weight 7168 2048
model.layers.{3:61}.mlp.shared_experts.gate_proj.weight 2048 7168
model.layers.{3:61}.mlp.shared_experts.up_proj.weight 2048 7168
model.layers.{3:61}.mlp.shared_experts.down_proj.weight 7168 2048
model.norm.weight 7168
lm_head.weight 129280 7168
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


def compressed(dense, nope, rope, values, rank, first, **more):
    """The further sizes of a model whose keys and values are compressed."""
    lengths = {"qk_nope_head_dim": nope, "qk_rope_head_dim": rope, "v_head_dim": values}
    ranks = {"kv_lora_rank": rank, "q_lora_rank": first}
    groups = {"n_group": 1, "topk_group": 1, "n_shared_experts": 1}
    return {**lengths, **ranks, **groups, "first_k_dense_replace": dense, **more}


COMPRESSED = [
    {**one, "num_key_value_heads": one["num_attention_heads"], "n_routed_experts": experts, **two}
    for one, experts, two in (
        (SMALL[0], 4, compressed(1, 12, 4, 10, 14, 22)),
        (SMALL[1], 5, compressed(2, 20, 6, 16, 18, 26)),
        (SMALL[2], 7, compressed(1, 18, 8, 6, 26, 34)),
    )
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


def are_of_experts(output, name):
    """Each expert's part of a tensor is the expert's own, in its order."""
    shape = output.header.shape
    for expert, *place in places(shape):
        assert source_of(output, in_order(shape, (expert, *place))) == (
            name.format(expert),
            in_order(shape[1:], place),
        )


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
        are_of_experts(output, f"model.layers.1.{module}.experts.{{}}.{ours}.weight")


def test_deepseek_v3(tmp_path):
    here("mlx-lm")
    from tests.converters import by_path

    small = folders("DeepseekV3ForCausalLM", COMPRESSED, tmp_path)
    table = ferry.WeightMap.trace(by_path.deepseek_to_mlx, small)
    assert table.complete
    assert len(table.rules) <= 24
    source = real(DEEPSEEK)
    more = {"n_group": 8, "topk_group": 4, "rope_scaling": None}
    target = of_mlx("deepseek_v3", {**DEEPSEEK_V3, **more})
    assert table.check(source, target, config=DEEPSEEK_V3) == []
    made = table.explain(source, config=DEEPSEEK_V3).tensors
    for layer in (0, 60):
        keys = made[f"model.layers.{layer}.self_attn.embed_q.weight"]
        values = made[f"model.layers.{layer}.self_attn.unembed_out.weight"]
        assert keys.header.shape == (128, 512, 128)
        assert values.header.shape == (128, 128, 512)
        both = f"model.layers.{layer}.self_attn.kv_b_proj.weight"
        for head, rank, place in places(keys.header.shape):
            at = in_order((128, 256, 512), (head, place, rank))
            assert source_of(keys, in_order(keys.header.shape, (head, rank, place))) == (both, at)
        for head, place, rank in places(values.header.shape):
            at = in_order((128, 256, 512), (head, 128 + place, rank))
            assert source_of(values, in_order(values.header.shape, (head, place, rank))) == (
                both,
                at,
            )
    for word in ("gate", "up", "down"):
        output = made[f"model.layers.3.mlp.switch_mlp.{word}_proj.weight"]
        are_of_experts(output, f"model.layers.3.mlp.experts.{{}}.{word}_proj.weight")


def test_llama_8b_by_head(tmp_path):
    here("google-tunix")
    from tests.converters import by_path, from_tunix

    small = folders("LlamaForCausalLM", SMALL, tmp_path)
    table = ferry.WeightMap.trace(by_path.llama_to_tunix, small)
    assert table.complete
    assert len(table.rules) <= 12
    source = real(LLAMA)
    target = {
        name: info(each.shape, "bfloat16")
        for name, each in from_tunix.of_size("llama3", "Llama3", LLAMA_8B).items()
    }
    assert table.check(source, target, config=LLAMA_8B) == []
    made = table.explain(source, config=LLAMA_8B).tensors
    for kind, heads in (("q", 32), ("k", 8), ("v", 8), ("o", 32)):
        output = made[f"layers.31.attn.{kind}_proj.w"]
        shape = (32, 128, 4096) if kind == "o" else (4096, heads, 128)
        assert output.header.shape == shape
        for place in places(shape):
            name, at = source_of(output, in_order(shape, place))
            assert name == f"model.layers.31.self_attn.{kind}_proj.weight"
            # Rows of the source are outputs of the layer.
            columns = 4096
            if kind == "o":
                head, length, row = place
                column = head * 128 + length
            else:
                column, head, length = place
                row = head * 128 + length
            assert at == row * columns + column


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
