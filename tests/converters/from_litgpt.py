"""litgpt's converters between Hugging Face's and its own names and layouts."""

from __future__ import annotations

from functools import partial

from tests.converters import stand_ins
from tests.converters.sources import Case, headers, made, named

stand_ins.install()

from litgpt import Config  # noqa: E402
from litgpt.scripts import convert_hf_checkpoint as from_hf  # noqa: E402
from litgpt.scripts import convert_lit_checkpoint as to_hf  # noqa: E402

SMALL = {
    "name": "small",
    "block_size": 32,
    "vocab_size": 50,
    "padded_vocab_size": 50,
    "n_layer": 2,
    "n_head": 4,
    "n_query_groups": 2,
    "n_embd": 24,
    "head_size": 6,
    "intermediate_size": 40,
}
LLAMA = Config(**SMALL, mlp_class_name="LLaMAMLP")
EXPERTS = Config(**SMALL, mlp_class_name="LLaMAMoE", n_expert=3, n_expert_per_token=2)
GEMMA = Config(**{**SMALL, "name": "Gemma-2-small"}, mlp_class_name="GemmaMLP")
FALCON = Config(**{**SMALL, "name": "falcon-40b"})
OLMO = Config(**{**SMALL, "name": "OLMo-2-small"}, mlp_class_name="LLaMAMLP")
PHI = Config(**{**SMALL, "name": "phi-2", "n_query_groups": 4})
PHI_3 = Config(**{**SMALL, "name": "Phi-3-small"}, mlp_class_name="LLaMAMLP")
NEOX = Config(**{**SMALL, "n_query_groups": 4})


def joined(copy, weights, *before):
    """Of those that gather q, k and v in a dict of their own."""
    found = {}
    copy(*before, {}, found, weights)
    return found


def copied(copy, config, weights, **keywords):
    found = {}
    copy(config, found, weights, **keywords)
    return found


def neox(weights):
    return copied(from_hf.copy_weights_gpt_neox, NEOX, weights)


def neox_back(weights):
    return copied(to_hf.copy_weights_gpt_neox, NEOX, weights)


def falcon(weights):
    return copied(from_hf.copy_weights_falcon, FALCON, weights)


def falcon_back(weights):
    return copied(to_hf.copy_weights_falcon, FALCON, weights)


def llama(weights):
    return joined(from_hf.copy_weights_hf_llama, weights, LLAMA)


def llama_back(weights):
    return copied(to_hf.copy_weights_llama, LLAMA, weights)


def mixtral(weights):
    return joined(from_hf.copy_weights_hf_llama, weights, EXPERTS)


def mixtral_back(weights):
    return copied(to_hf.copy_weights_llama, EXPERTS, weights)


def gemma(weights):
    return joined(from_hf.copy_weights_gemma_2, weights)


def gemma_back(weights):
    return copied(to_hf.copy_weights_gemma_2, GEMMA, weights)


def phi(weights):
    return joined(from_hf.copy_weights_phi, weights, PHI)


def phi_back(weights):
    return copied(to_hf.copy_weights_phi, PHI, weights)


def phi_3(weights):
    return joined(from_hf.copy_weights_phi, weights, PHI_3)


def qwen(weights):
    return joined(from_hf.copy_weights_qwen_2_5, weights, LLAMA)


def qwen_back(weights):
    return copied(to_hf.copy_weights_qwen_2_5, LLAMA, weights)


def olmo(weights):
    return joined(from_hf.copy_weights_olmo2, weights, LLAMA)


def olmo_back(weights):
    return copied(to_hf.copy_weights_olmo2, OLMO, weights)


def qwen_3(weights):
    return joined(from_hf.copy_weights_qwen_3, weights, LLAMA)


def qwen_3_moe(weights):
    return joined(from_hf.copy_weights_qwen_3, weights, EXPERTS)


def of(kind, **config):
    return partial(headers, kind, **config)


def back(convert, source):
    return lambda: made(convert, source())


def of_olmo_back():
    """As it wants them: what it gives itself has another name for this norm, and it refuses it."""
    found = made(olmo, OF_OLMO())
    return {name.replace("post_attention_norm", "norm_2"): each for name, each in found.items()}


OF_NEOX = of("GPTNeoXForCausalLM")
OF_FALCON = partial(
    named,
    """
transformer.word_embeddings.weight 50 24
transformer.h.{2}.ln_attn.weight 24
transformer.h.{2}.ln_attn.bias 24
transformer.h.{2}.ln_mlp.weight 24
transformer.h.{2}.ln_mlp.bias 24
transformer.h.{2}.self_attention.query_key_value.weight 48 24
transformer.h.{2}.self_attention.dense.weight 24 24
transformer.h.{2}.mlp.dense_h_to_4h.weight 96 24
transformer.h.{2}.mlp.dense_4h_to_h.weight 24 96
transformer.ln_f.weight 24
transformer.ln_f.bias 24
lm_head.weight 50 24
""",
)
OF_LLAMA = of("LlamaForCausalLM")
OF_MIXTRAL = of("MixtralForCausalLM", num_local_experts=3, num_experts_per_tok=2)
OF_GEMMA = of("Gemma2ForCausalLM", tie_word_embeddings=True)
OF_PHI = of("PhiForCausalLM", num_key_value_heads=4)
OF_QWEN = of("Qwen2ForCausalLM")
OF_OLMO = of("Olmo2ForCausalLM")
OF_QWEN_3 = of("Qwen3ForCausalLM")
OF_QWEN_3_MOE = of("Qwen3MoeForCausalLM", num_experts=3, moe_intermediate_size=16)
FROM, TO = "litgpt.scripts.convert_hf_checkpoint", "litgpt.scripts.convert_lit_checkpoint"
CASES = (
    Case(f"{FROM}.copy_weights_gpt_neox", neox, OF_NEOX),
    Case(f"{TO}.copy_weights_gpt_neox", neox_back, back(neox, OF_NEOX)),
    Case(f"{FROM}.copy_weights_falcon", falcon, OF_FALCON),
    Case(f"{TO}.copy_weights_falcon", falcon_back, back(falcon, OF_FALCON)),
    Case(f"{FROM}.copy_weights_hf_llama", llama, OF_LLAMA),
    Case(f"{TO}.copy_weights_llama", llama_back, back(llama, OF_LLAMA)),
    Case(f"{FROM}.copy_weights_hf_llama (experts)", mixtral, OF_MIXTRAL),
    Case(f"{TO}.copy_weights_llama (experts)", mixtral_back, back(mixtral, OF_MIXTRAL)),
    Case(f"{FROM}.copy_weights_gemma_2", gemma, OF_GEMMA),
    Case(
        f"{TO}.copy_weights_gemma_2", gemma_back, back(gemma, OF_GEMMA), dropped=("lm_head.weight",)
    ),
    Case(f"{FROM}.copy_weights_phi", phi, OF_PHI),
    Case(f"{TO}.copy_weights_phi", phi_back, back(phi, OF_PHI)),
    Case(f"{FROM}.copy_weights_phi (3)", phi_3, of("Phi3ForCausalLM")),
    Case(f"{FROM}.copy_weights_qwen_2_5", qwen, OF_QWEN),
    Case(f"{TO}.copy_weights_qwen_2_5", qwen_back, back(qwen, OF_QWEN)),
    Case(f"{FROM}.copy_weights_olmo2", olmo, OF_OLMO),
    Case(f"{TO}.copy_weights_olmo2", olmo_back, of_olmo_back),
    Case(f"{FROM}.copy_weights_qwen_3", qwen_3, OF_QWEN_3),
    Case(f"{FROM}.copy_weights_qwen_3 (experts)", qwen_3_moe, OF_QWEN_3_MOE),
)
