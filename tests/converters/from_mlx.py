"""mlx-lm's `sanitize` of models: from Hugging Face's names and layouts to those of its modules."""

from __future__ import annotations

import importlib
from functools import partial
from types import SimpleNamespace

import ml_dtypes
import mlx.core as mx
import numpy as np
from tests.converters.sources import Case, headers, info, named


def sanitized(family, weights, **config):
    """What a model of a family makes of the tensors of a file."""
    module = importlib.import_module(f"mlx_lm.models.{family}")
    settings = {"num_hidden_layers": 2, "tie_word_embeddings": False, **config}
    model = SimpleNamespace(args=SimpleNamespace(**settings))
    given = {name: mx.array(each.numpy()) for name, each in weights.items()}
    found = module.Model.sanitize(model, given)
    return {name: as_array(each) for name, each in found.items()}


def as_array(tensor):
    """An array with the same bits; NumPy itself has no bfloat16."""
    if tensor.dtype == mx.bfloat16:
        return np.array(tensor.view(mx.uint16)).view(ml_dtypes.bfloat16)
    return np.array(tensor)


def mixtral(weights):
    return sanitized("mixtral", weights, num_local_experts=3)


def qwen_3_moe(weights):
    return sanitized("qwen3_moe", weights, num_experts=3)


def qwen_2_moe(weights):
    return sanitized("qwen2_moe", weights, num_experts=3)


def phimoe(weights):
    return sanitized("phimoe", weights, num_local_experts=3)


def olmoe(weights):
    return sanitized("olmoe", weights, num_experts=3)


def deepseek(weights):
    heads = {"qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 10, "kv_lora_rank": 14}
    more = {"num_hidden_layers": 3, "n_routed_experts": 4, "num_attention_heads": 4}
    return sanitized("deepseek_v3", weights, **heads, **more, num_nextn_predict_layers=0)


def gpt_2(weights):
    return sanitized("gpt2", weights, n_layer=2)


def neox(weights):
    return sanitized("gpt_neox", weights)


def mamba(weights):
    return sanitized("mamba", weights)


def lfm(weights):
    return sanitized("lfm2", weights)


def granite(weights):
    return sanitized("granitemoe", weights)


def jamba(weights):
    return sanitized("jamba", weights)


def qwen_3_next(weights):
    return sanitized("qwen3_next", weights, num_experts=3)


def gemma(weights):
    return sanitized("gemma3_text", weights)


def minimax(weights):
    return sanitized("minimax", weights, num_local_experts=3)


def of(kind, **config):
    return partial(headers, kind, **config)


def of_gpt_2():
    """The file of GPT-2 has no `transformer.` before the names."""
    found = headers("GPT2LMHeadModel", n_embd=24, n_layer=2, n_head=4, n_inner=40)
    return {name.removeprefix("transformer."): each for name, each in found.items()}


EXPERTS = {"num_local_experts": 3, "num_experts_per_tok": 2}
MANY = {"num_experts": 3, "moe_intermediate_size": 16}
OF_DEEPSEEK = of(
    "DeepseekV3ForCausalLM",
    num_hidden_layers=3,
    num_key_value_heads=4,
    first_k_dense_replace=1,
    n_routed_experts=4,
    num_experts_per_tok=2,
    n_group=2,
    topk_group=1,
    moe_intermediate_size=18,
    qk_nope_head_dim=8,
    qk_rope_head_dim=4,
    v_head_dim=10,
    kv_lora_rank=14,
    q_lora_rank=22,
)
PLAIN = """
model.embed_tokens.weight 50 24
model.layers.{2}.input_layernorm.weight 24
"""


def in_eight_bits():
    """Matrices of float8, which MLX reads as bytes, and their factors."""
    found = named(PLAIN)
    for layer in range(2):
        name = f"model.layers.{layer}.mlp.down_proj.weight"
        found[name] = info((24, 40), "uint8")
        found[f"{name}_scale_inv"] = info((1, 1))
    return found


def in_four_bits():
    """Matrices of eight numbers in an integer, and their factors by group."""
    found = named(PLAIN)
    for layer in range(2):
        name = f"model.layers.{layer}.mlp.down_proj.weight"
        found[f"{name}_packed"] = info((24, 5), "int32")
        found[f"{name}_scale"] = info((24, 2))
        found[f"{name}_shape"] = info((2,), "int64")
    return found


NORMS = {
    "*layernorm.weight": "affine 1*x+1",
    "model.norm.weight": "affine 1*x+1",
    "*_norm.weight": "affine 1*x+1",
}


def case(family, convert, source, **more):
    return Case(f"mlx_lm.models.{family}.Model.sanitize", convert, source, **more)


CASES = (
    case("mixtral", mixtral, of("MixtralForCausalLM", **EXPERTS), most=13),
    case("qwen3_moe", qwen_3_moe, of("Qwen3MoeForCausalLM", **MANY)),
    case(
        "qwen2_moe",
        qwen_2_moe,
        of("Qwen2MoeForCausalLM", **MANY, shared_expert_intermediate_size=20),
    ),
    case("phimoe", phimoe, of("PhimoeForCausalLM", **EXPERTS)),
    case("olmoe", olmoe, of("OlmoeForCausalLM", num_experts=3)),
    case("deepseek_v3", deepseek, OF_DEEPSEEK, most=24),
    case(
        "deepseek_v3",
        deepseek,
        in_eight_bits,
        reasons={"*.down_proj.weight": "arithmetic"},
    ),
    case(
        "deepseek_v3",
        deepseek,
        in_four_bits,
        reasons={"*.biases": "affine -8*x+0"},
        dropped=("*_shape",),
    ),
    case("gpt2", gpt_2, of_gpt_2),
    case("gpt_neox", neox, of("GPTNeoXForCausalLM")),
    case("mamba", mamba, of("MambaForCausalLM", state_size=5, time_step_rank=7)),
    case("lfm2", lfm, of("Lfm2ForCausalLM", layer_types="conv full_attention")),
    case("granitemoe", granite, of("GraniteMoeForCausalLM", **EXPERTS)),
    case(
        "jamba",
        jamba,
        of(
            "JambaForCausalLM",
            num_experts=3,
            num_hidden_layers=2,
            attn_layer_period=2,
            attn_layer_offset=1,
            expert_layer_period=2,
            expert_layer_offset=1,
            mamba_d_state=5,
            mamba_dt_rank=7,
        ),
    ),
    case(
        "qwen3_next",
        qwen_3_next,
        of(
            "Qwen3NextForCausalLM",
            num_experts=3,
            moe_intermediate_size=16,
            shared_expert_intermediate_size=20,
            linear_num_value_heads=4,
            linear_num_key_heads=2,
            linear_key_head_dim=6,
            linear_value_head_dim=8,
            layer_types="linear_attention full_attention",
        ),
        reasons=NORMS,
    ),
    case("minimax", minimax, of("MiniMaxForCausalLM", **EXPERTS)),
)
