"""tunix's loaders of transformers' files into its own models, which are of Flax."""

from __future__ import annotations

import importlib
import tempfile
from functools import partial

import numpy as np
from safetensors.torch import save_file
from tests.converters import stand_ins
from tests.converters.sources import SMALL, Case, headers

stand_ins.install()
stand_ins.without_what_it_imports("tunix")

import jax  # noqa: E402
from flax import nnx  # noqa: E402
from tunix.models.safetensors_loader import path_to_key  # noqa: E402


def sizes_of(config):
    """The sizes of a model of transformers in the words of tunix."""
    return {
        "num_layers": config["num_hidden_layers"],
        "vocab_size": config["vocab_size"],
        "embed_dim": config["hidden_size"],
        "hidden_dim": config["intermediate_size"],
        "num_heads": config["num_attention_heads"],
        "head_dim": config["head_dim"],
        "num_kv_heads": config["num_key_value_heads"],
        "rope_theta": 10_000,
        "norm_eps": 1e-6,
    }


SIZES = sizes_of(SMALL)
# The models of Gemma have other words, and no choice of these.
GEMMA = {
    "num_embed": SMALL["vocab_size"],
    "vocab_size": None,
    "rope_theta": None,
    "norm_eps": None,
}


def loaded(family, sizes, weights, parameters="params"):
    """The parameters of a model that is made of a file of these tensors."""
    place = f"tunix.models.{family}"
    sizes = {key: length for key, length in sizes.items() if length is not None}
    config = importlib.import_module(f"{place}.model").ModelConfig(**sizes)
    load = importlib.import_module(f"{place}.{parameters}").create_model_from_safe_tensors
    with tempfile.TemporaryDirectory() as folder:
        save_file(weights, f"{folder}/model.safetensors")
        _, state = nnx.split(load(folder, config))
        found = jax.tree_util.tree_leaves_with_path(state.to_pure_dict())
        return {path_to_key(path): np.array(each) for path, each in found}


def of_size(family, name, config):
    """The parameters that a model has, of which none is made."""
    module = importlib.import_module(f"tunix.models.{family}.model")
    settings = module.ModelConfig(**sizes_of(config))
    model = nnx.eval_shape(lambda: getattr(module, name)(settings, rngs=nnx.Rngs(params=0)))
    found = jax.tree_util.tree_leaves_with_path(nnx.split(model)[1].to_pure_dict())
    return {path_to_key(path): each for path, each in found}


def case(family, kind, *, sizes=None, dropped=(), parameters="params", **config):
    return Case(
        f"tunix.models.{family}.{parameters}.create_model_from_safe_tensors ({kind})",
        partial(loaded, family, {**SIZES, **(sizes or {})}, parameters=parameters),
        partial(headers, kind, **config),
        dropped=dropped,
    )


CASES = (
    case("llama3", "LlamaForCausalLM"),
    case("qwen2", "Qwen2ForCausalLM"),
    case("qwen3", "Qwen3ForCausalLM"),
    case(
        "qwen3",
        "Qwen3MoeForCausalLM",
        sizes={"num_experts": 3, "num_experts_per_tok": 2, "hidden_dim": 16},
        num_experts=3,
        moe_intermediate_size=16,
    ),
    case(
        "gemma3",
        "Gemma3ForCausalLM",
        sizes={**GEMMA, "param_dtype": jax.numpy.float32, "sliding_window_size": 16},
        parameters="params_safetensors",
        configuration="Gemma3Text",
        tie_word_embeddings=True,
    ),
    case(
        "gemma",
        "Gemma2ForCausalLM",
        sizes={
            **GEMMA,
            "final_logit_softcap": 30.0,
            "use_post_attn_norm": True,
            "use_post_ffw_norm": True,
            "attention_types": (1, 2),
        },
        parameters="params_safetensors",
        tie_word_embeddings=True,
    ),
)
