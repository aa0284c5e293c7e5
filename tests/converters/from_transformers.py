"""transformers' loader of GGUF files, from the names and layouts of llama.cpp to its own."""

from __future__ import annotations

import tempfile
from functools import lru_cache, partial

import gguf
import numpy as np
import torch
import transformers
from tests.converters.sources import Case, config_of, info
from transformers import modeling_gguf_pytorch_utils as loader

TRANSPOSED = ("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")


def model_of(kind, **config):
    with torch.device("meta"):
        return getattr(transformers, kind)(config_of(kind, **config))


def written(architecture, weights, path, counts):
    """A file as llama.cpp has it, made with its own library."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, count in counts.items():
        add = writer.add_array if isinstance(count, list) else writer.add_uint32
        add(f"{architecture}.{key}", count)
    for name, each in weights.items():
        writer.add_tensor(name, each.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def loaded(architecture, kind, weights, counts, **config):
    """The tensors that the loader makes of a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.gguf"
        written(architecture, weights, path, counts)
        model = model_of(kind, **config)
        # Random bits have no logarithm.
        with np.errstate(all="ignore"):
            found = loader.load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)
        return found["tensors"]


@lru_cache
def tensors_of(architecture, kind, **config):
    """The tensors of a file, under llama.cpp's names, in the shapes that its converter writes."""
    model = model_of(kind, **config)
    processor = loader.TENSOR_PROCESSORS.get(architecture, loader.TensorProcessor)()
    names = loader.get_gguf_hf_weights_map(model, processor)
    shapes = {name: tuple(each.shape) for name, each in model.state_dict().items()}
    found = {}
    for name, theirs in names.items():
        shape = shapes.get(theirs)
        if shape is None:
            continue
        if name.endswith(("gate_exps", "up_exps")):
            shape = (shape[0], shape[1] // 2, shape[2])
        if architecture == "gpt2" and name.endswith(TRANSPOSED):
            shape = shape[::-1]
        if name.endswith(("conv1d.weight", "conv.weight", "ffn_gate_inp_shexp.weight")):
            shape = tuple(length for length in shape if length > 1)
        found[f"{name}.weight" if name.endswith("_exps") else name] = info(shape)
    return found


HEADS = {"attention.head_count": 4, "attention.head_count_kv": 2, "block_count": 2}


def case(architecture, kind, *, counts=HEADS, reasons=None, dropped=(), **config):
    return Case(
        f"transformers.modeling_gguf_pytorch_utils.load_gguf_checkpoint ({architecture})",
        partial(loaded, architecture, kind, counts=counts, **config),
        partial(tensors_of, architecture, kind, **config),
        reasons=reasons or {},
        dropped=dropped,
    )


LESS_ONE = {"*norm.weight": "affine 1*x-1"}
CASES = (
    case("llama", "LlamaForCausalLM"),
    case("qwen2", "Qwen2ForCausalLM"),
    case("qwen3", "Qwen3ForCausalLM"),
    case(
        "qwen2moe",
        "Qwen2MoeForCausalLM",
        num_experts=3,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=20,
    ),
    case("qwen3moe", "Qwen3MoeForCausalLM", num_experts=3, moe_intermediate_size=16),
    case(
        "bloom", "BloomForCausalLM", counts={"embedding_length": 24, **HEADS}, n_layer=2, n_head=4
    ),
    case("gpt2", "GPT2LMHeadModel", n_embd=24, n_layer=2, n_head=4),
    case(
        "mamba",
        "MambaForCausalLM",
        # It takes the logarithm that llama.cpp has taken away.
        reasons={"*.A_log": "arithmetic"},
        state_size=5,
        time_step_rank=7,
    ),
    case("nemotron", "NemotronForCausalLM", reasons=LESS_ONE),
    case("gemma2", "Gemma2ForCausalLM", tie_word_embeddings=True, reasons=LESS_ONE),
    case("phi3", "Phi3ForCausalLM"),
    case(
        "lfm2",
        "Lfm2ForCausalLM",
        # A number for each layer, none for one that only convolves.
        counts={**HEADS, "attention.head_count_kv": [0, 2]},
        layer_types="conv full_attention",
    ),
)
