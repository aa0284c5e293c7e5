"""TransformerLens: weights of models of transformers by head, for its hooks."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import torch
from tests.converters import stand_ins
from tests.converters.sources import Case, headers

stand_ins.install()

from transformer_lens.pretrained import weight_conversions as lens  # noqa: E402


class Weights:
    """Weights as the attributes and items of modules that they are in a model."""

    def __init__(self, weights, prefix=""):
        self._weights = weights
        self._prefix = prefix

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self._at(name)

    def __getitem__(self, number):
        return self._at(str(number))

    def _at(self, name):
        name = f"{self._prefix}{name}"
        if name in self._weights:
            return self._weights[name]
        if any(each.startswith(f"{name}.") for each in self._weights):
            return Weights(self._weights, f"{name}.")
        raise AttributeError(name)


def settings(**config):
    small = {
        "n_layers": 2,
        "n_heads": 4,
        "n_key_value_heads": 2,
        "d_model": 24,
        "d_head": 6,
        "d_mlp": 40,
        "d_vocab": 50,
        "num_experts": 3,
        "dtype": torch.float32,
        "device": "cpu",
        "load_in_4bit": False,
        "use_normalization_before_and_after": False,
    }
    return SimpleNamespace(**{**small, **config})


def llama(weights):
    return lens.convert_llama_weights(Weights(weights), settings())


def mistral(weights):
    return lens.convert_mistral_weights(Weights(weights), settings())


def mixtral(weights):
    return lens.convert_mixtral_weights(Weights(weights), settings())


def qwen_2(weights):
    return lens.convert_qwen2_weights(Weights(weights), settings())


def qwen_3(weights):
    return lens.convert_qwen3_weights(Weights(weights), settings())


def gpt_2(weights):
    return lens.convert_gpt2_weights(Weights(weights), settings())


def gemma(weights):
    return lens.convert_gemma_weights(Weights(weights), settings())


def neox(weights):
    return lens.convert_neox_weights(Weights(weights), settings())


def bloom(weights):
    return lens.convert_bloom_weights(Weights(weights), settings())


def phi(weights):
    return lens.convert_phi_weights(Weights(weights), settings())


def opt(weights):
    return lens.convert_opt_weights(Weights(weights), settings())


def bert(weights):
    return lens.convert_bert_weights(Weights(weights), settings())


def of(kind, **config):
    return partial(headers, kind, **config)


def case(family, convert, source, **more):
    name = f"transformer_lens.pretrained.weight_conversions.convert_{family}_weights"
    return Case(name, convert, source, **more)


SUMS = {
    "embed.W_E": "affine 4.89898*x+0",
    "*.ln1.w": "affine 1*x+1",
    "*.ln2.w": "affine 1*x+1",
    "ln_final.w": "affine 1*x+1",
}
CASES = (
    case("llama", llama, of("LlamaForCausalLM")),
    case("mistral", mistral, of("MistralForCausalLM")),
    case("mixtral", mixtral, of("MixtralForCausalLM", num_local_experts=3, num_experts_per_tok=2)),
    case("qwen2", qwen_2, of("Qwen2ForCausalLM")),
    case("qwen3", qwen_3, of("Qwen3ForCausalLM")),
    case("gpt2", gpt_2, of("GPT2LMHeadModel", n_embd=24, n_layer=2, n_head=4, n_inner=40)),
    case("gemma", gemma, of("GemmaForCausalLM"), reasons=SUMS),
    case("neox", neox, of("GPTNeoXForCausalLM")),
    case("bloom", bloom, of("BloomForCausalLM", n_layer=2, n_head=4)),
    case("phi", phi, of("PhiForCausalLM", num_key_value_heads=4)),
    case(
        "opt",
        opt,
        of("OPTForCausalLM", ffn_dim=40, word_embed_proj_dim=24),
        dropped=("*embed_positions.weight",),
    ),
    case("bert", bert, of("BertForPreTraining"), dropped=("cls.predictions.bias",)),
)
