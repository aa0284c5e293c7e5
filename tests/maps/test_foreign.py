"""Converters that other people wrote, as they are installed: their own result is the oracle."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.maps.test_tracing import carried_out
from tests.support import importable

from tensorferry.host.numpy_dtypes import numpy_dtype
from tensorferry.maps.lowering import Header
from tensorferry.maps.tracing import numbers_in, trace

pytestmark = pytest.mark.slow

transformers = importable("transformers")

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "head_dim": 8,
    "max_position_embeddings": 32,
}
EXPERTS = {"num_local_experts": 3, "num_experts_per_tok": 2}
FAMILIES = {
    "Llama": {},
    "Mistral": {},
    "Qwen2": {},
    "Qwen3": {},
    "Gemma": {},
    "Gemma2": {},
    "Phi3": {"pad_token_id": 0},
    "Olmo2": {},
    "Cohere": {},
    "StableLm": {},
    "Starcoder2": {},
    "Granite": {},
    "Mixtral": EXPERTS,
    "Qwen2Moe": {
        "num_experts": 3,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 24,
    },
    "Qwen3Moe": {"num_experts": 3, "moe_intermediate_size": 16},
    "Olmoe": {"num_experts": 3},
    "PhiMoE": EXPERTS,
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
    "GPTNeoX": {},
    "Opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
}


def from_pretrained(path: str):
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)


def model_of(family, tmp_path, **changed):
    """A small model of a family, saved, and the tensors of its file."""
    from safetensors import safe_open

    kinds = {name.lower(): name for name in dir(transformers)}
    config = getattr(transformers, kinds[f"{family}config".lower()])(
        **{**SMALL, **FAMILIES[family], **changed}
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "numpy") as file:
        names = list(file.keys())
        arrays = {name: file.get_tensor(name) for name in names}
    return arrays, json.loads((tmp_path / "config.json").read_text())


@pytest.mark.parametrize("family", FAMILIES)
def test_loading_a_model_is_a_table(family, tmp_path):
    """From the file that was saved to the tensors of the model that loads it."""
    arrays, config = model_of(family, tmp_path)
    source = {name: Header(each.shape, each.dtype.name) for name, each in arrays.items()}
    table = trace(from_pretrained, source, framework="torch", config=config)
    theirs = {
        name: each.detach().numpy()
        for name, each in from_pretrained(str(tmp_path)).state_dict().items()
    }
    ours = carried_out(table, arrays, numbers_in(config))
    unfilled = {str(rule.target) for rule in table.rules if rule.expression is None}
    assert ours.keys() | unfilled == theirs.keys()
    assert unfilled == set()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name])
        assert array.dtype == numpy_dtype("float32")


SIZES = [
    {
        "hidden_size": 42,
        "intermediate_size": 52,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
    },
    {
        "hidden_size": 36,
        "intermediate_size": 50,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    },
    {
        "hidden_size": 70,
        "intermediate_size": 66,
        "num_attention_heads": 7,
        "num_key_value_heads": 1,
    },
]
COUNTS = [
    {"num_hidden_layers": 2, "vocab_size": 64, "head_dim": 8},
    {"num_hidden_layers": 3, "vocab_size": 90, "head_dim": 10},
    {"num_hidden_layers": 2, "vocab_size": 77, "head_dim": 14},
]


@pytest.mark.parametrize("family", ["Llama", "Mixtral", "Qwen3Moe"])
def test_three_sizes_are_enough_for_a_fourth(family, tmp_path):
    """With more layers and experts than any that was traced."""
    experts = "num_local_experts" if family == "Mixtral" else "num_experts"
    sizes = []
    for place, (size, counts) in enumerate(zip(SIZES, COUNTS, strict=True)):
        more = {} if family == "Llama" else {experts: 3 + place}
        arrays, config = model_of(family, tmp_path / str(place), **size, **counts, **more)
        source = {name: Header(each.shape, each.dtype.name) for name, each in arrays.items()}
        sizes.append((source, config))
    table = trace(from_pretrained, sizes, framework="torch")
    assert table.complete
    assert len(table.rules) <= 14
    more = {} if family == "Llama" else {experts: 7}
    large = {"num_hidden_layers": 5, "hidden_size": 96, "intermediate_size": 80}
    arrays, config = model_of(family, tmp_path / "large", **large, **more)
    ours = carried_out(table, arrays, numbers_in(config))
    theirs = from_pretrained(str(tmp_path / "large")).state_dict()
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name].numpy())
