"""Converters as functions of a folder: what their libraries want to know is in its `config.json`."""

from __future__ import annotations

import importlib
import json
from pathlib import Path  # noqa: TC003 - a trace reads the annotation
from types import SimpleNamespace

from safetensors.torch import load_file


def opened(path):
    config = json.loads((path / "config.json").read_text())
    # transformers 5 saves this under one name for all families.
    config.setdefault("num_experts", config.get("num_local_experts"))
    config.setdefault("num_nextn_predict_layers", 0)
    return load_file(path / "model.safetensors"), config


def heads(config):
    return {
        "num_heads": config["num_attention_heads"],
        "num_kv_heads": config["num_key_value_heads"],
        "dim": config["hidden_size"],
    }


def llama_to_tune(path: Path):
    from tests.converters import from_torchtune

    weights, config = opened(path)
    return from_torchtune.convert_weights.hf_to_tune(
        weights, **heads(config), head_dim=config["head_dim"]
    )


def phi_to_tune(path: Path):
    from tests.converters import from_torchtune

    weights, config = opened(path)
    return from_torchtune.phi3.phi3_hf_to_tune(weights, **heads(config))


def to_mlx(path, family):
    import mlx.core as mx
    import numpy as np

    weights, config = opened(path)
    module = importlib.import_module(f"mlx_lm.models.{family}")
    given = {name: mx.array(each.numpy()) for name, each in weights.items()}
    model = SimpleNamespace(args=SimpleNamespace(**config))
    return {name: np.array(each) for name, each in module.Model.sanitize(model, given).items()}


def mixtral_to_mlx(path: Path):
    return to_mlx(path, "mixtral")


def qwen_to_mlx(path: Path):
    return to_mlx(path, "qwen3_moe")


def deepseek_to_mlx(path: Path):
    return to_mlx(path, "deepseek_v3")


def llama_to_tunix(path: Path):
    from tests.converters import from_tunix

    weights, config = opened(path)
    return from_tunix.loaded("llama3", from_tunix.sizes_of(config), weights)
