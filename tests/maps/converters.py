"""Converters of weights, as people write them: what they do to a weight, and what makes them hard to read."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import numpy as np

HEADS, GROUPS, SIZE, WIDTH = 4, 2, 6, 24


def renamed(weights):
    return {f"model.{name}": each for name, each in weights.items()}


def turned(each):
    return each.T if each.ndim == 2 else each


def transposed(weights):
    return {name: turned(each) for name, each in weights.items()}


def reshaped(weights):
    return {"w": weights["w"].reshape(HEADS, SIZE, WIDTH), "b": weights["b"].reshape(1, -1)}


def permuted_for_rope(weights):
    return {
        "q": weights["w"].reshape(HEADS, 2, SIZE // 2, WIDTH).swapaxes(1, 2).reshape(WIDTH, WIDTH)
    }


def fused(weights):
    import torch

    return {"qkv": torch.cat([weights[name] for name in "qkv"])}


def unfused(weights):
    q, k, v = weights["qkv"].split([24, 12, 12])
    return {"q": q, "k": k, "v": v}


def fused_by_head(weights):
    import torch

    parts = [weights[name].reshape(GROUPS, -1, WIDTH) for name in "qkv"]
    return {"qkv": torch.cat(parts, 1).reshape(-1, WIDTH)}


def unfused_by_head(weights):
    each = weights["qkv"].reshape(GROUPS, 4, SIZE, WIDTH)
    return {
        "q": each[:, :2].reshape(-1, WIDTH),
        "k": each[:, 2].reshape(-1, WIDTH),
        "v": each[:, 3].reshape(-1, WIDTH),
    }


def experts_stacked(weights):
    import torch

    found = {}
    for layer in range(2):
        for name in ("up", "down"):
            experts = [weights[f"h.{layer}.experts.{e}.{name}"] for e in range(3)]
            found[f"layers.{layer}.{name}"] = torch.stack(experts)
    return found


def experts_joined(weights):
    import torch

    found = {}
    for layer in range(2):
        both = []
        for e in range(3):
            name = f"h.{layer}.experts.{e}"
            both.append(torch.cat([weights[f"{name}.up"], weights[f"{name}.down"].T]))
        found[f"layers.{layer}.gate_up"] = torch.stack(both)
    return found


def experts_unstacked(weights):
    return {
        f"layers.{layer}.experts.{e}.up": each
        for layer in range(2)
        for e, each in enumerate(weights[f"h.{layer}.up"])
    }


def flipped(weights):
    return {"w": weights["w"].flip(0), "b": weights["b"].flip(0)}


def halves_swapped(weights):
    import torch

    shift, scale = weights["w"].chunk(2)
    return {"w": torch.cat([scale, shift])}


def tied(weights):
    return {"embedding": weights["w"], "head": weights["w"]}


def with_steps(weights):
    return {"even": weights["w"][::2], "odd": weights["w"][1::2], "columns": weights["w"][:, 2:9:3]}


def interleaved(weights):
    import torch

    return {"both": torch.stack([weights["q"], weights["k"]], 1).reshape(-1, WIDTH)}


def repeated(weights):
    return {"w": weights["k"].repeat_interleave(3, 0), "b": weights["b"].expand(5, -1)}


def padded(weights):
    import torch

    return {"w": torch.nn.functional.pad(weights["w"], (0, 2, 1, 0))}


def cast(weights):
    return {"w": weights["w"].to(dtype=weights["w"].new_zeros(0).half().dtype), "b": weights["b"]}


def plus_one(weights):
    return {"norm": weights["b"] + 1, "w": weights["w"]}


def scaled(weights):
    return {"w": weights["w"] * 0.125, "b": weights["b"]}


def clamped(weights):
    return {"w": weights["w"].clamp(-1e4, 1e4), "b": weights["b"]}


def without_nan(weights):
    return {"w": weights["w"].nan_to_num(), "b": weights["b"]}


def through_half(weights):
    return {"w": weights["w"].half().float(), "b": weights["b"]}


def dropped_if_ones(weights):
    return {name: each for name, each in weights.items() if not bool((each == 1).all())}


def turned_if_negative(weights):
    w = weights["w"]
    return {"w": w.flip(0) if w.mean() < 0 else w, "b": weights["b"]}


def made_up(weights):
    import torch

    return {"w": weights["w"], "head": torch.randn(3, 4)}


def made_up_with_a_seed(weights):
    import torch

    torch.manual_seed(0)
    return {"w": weights["w"], "head": torch.randn(3, 4)}


def made_up_by_numpy(weights):
    import torch

    found = np.random.default_rng(7).standard_normal((3, 4))
    return {"w": weights["w"], "head": torch.from_numpy(found)}


def with_constants(weights):
    import torch

    return {
        "w": weights["w"],
        "bias": torch.zeros(7),
        "scale": torch.full((3, 2), 0.5),
        "positions": torch.arange(40),
    }


def as_wide_integers(weights):
    import torch

    return {"blocks": weights["blocks"].view(torch.int32), "w": weights["w"]}


def mean_of_heads(weights):
    return {"w": weights["w"].reshape(HEADS, SIZE, WIDTH).mean(0)}


def summed(weights):
    return {"w": weights["q"] + weights["q2"], "b": weights["b"]}


def resampled(weights):
    import torch

    grid = weights["w"].reshape(1, 1, WIDTH, WIDTH)
    larger = torch.nn.functional.interpolate(grid, (30, 30), mode="bicubic")
    return {"w": larger.reshape(30, 30), "b": weights["b"]}


def diagonal(weights):
    return {"d": weights["w"].diagonal()}


def in_small_range(weights):
    assert all(float(each.abs().max()) < 20 for each in weights.values()), "too large"
    return {name: turned(each) for name, each in weights.items()}


def in_small_range_and_more(weights):
    assert all(float(each.abs().max()) < 20 for each in weights.values()), "too large"
    return {"w": weights["w"] + 1, "b": weights["b"]}


def changes_its_input(weights):
    found = {}
    for name in list(weights):
        found[f"x.{name}"] = weights.pop(name)
        found[f"x.{name}"].unsqueeze_(0)
    return found


def gives_nothing_for_some(weights):
    return {"w": weights["w"], "b": None, "step": 3}


def in_threads(weights):
    found = {}

    def work(name):
        found[f"t.{name}"] = turned(weights[name])

    threads = [threading.Thread(target=work, args=(name,)) for name in weights]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return {name: found[name] for name in sorted(found)}


def with_a_thread_that_stays(weights):
    threading.Thread(target=threading.Event().wait, daemon=False).start()
    return {name: turned(each) for name, each in weights.items()}


def prints(weights):
    sys.stdout.write("x" * 100_000)
    sys.stderr.write("y" * 100_000)
    return dict(weights)


def raises(weights):
    raise KeyError("model.embed_tokens.weight")


def exits(weights):
    sys.exit(4)


def ends_the_process(weights):
    os._exit(5)


def gives_a_number(weights):
    return 3


def nested(weights):
    return {
        "params": {
            "dense": {"kernel": weights["w"].T, "bias": weights["b"]},
            "list": [weights["b"]],
        }
    }


def as_module(weights):
    import torch

    module = torch.nn.Linear(WIDTH, WIDTH)
    module.load_state_dict({"weight": weights["w"], "bias": weights["b"]})
    return module


def as_sparse(weights):
    return {"w": weights["w"].to_sparse(), "b": weights["b"]}


def with_nothing_added(weights):
    return {"w": weights["w"] + 0 * weights["b"]}


def for_ever(weights):
    threading.Event().wait()


def too_much_memory(weights):
    import torch

    return {"w": torch.ones(1 << 40)}


def from_folder(folder: str):
    import json

    from safetensors.torch import load_file

    found = {}
    count = json.loads((Path(folder) / "config.json").read_text())["num_hidden_layers"]
    for file in sorted(Path(folder).glob("*.safetensors")):
        found.update(load_file(file))
    assert count == 2
    return {f"x.{name}": turned(each) for name, each in found.items()}


def from_file(path: Path):
    found = np.load(path)
    return {name: found[name].T for name in found.files}


def by_numpy(weights):
    return {
        "t": weights["w"].T,
        "q": np.stack([weights["q"], weights["q2"]], 1).reshape(-1, WIDTH),
        "flat": np.concatenate([weights["b"], weights["w"].ravel()]),
    }


def by_jax(weights):
    import jax.numpy as jnp

    return {
        "kernel": jnp.transpose(weights["w"]).reshape(WIDTH, HEADS, SIZE),
        "both": jnp.concatenate([weights["q"], weights["q2"]], axis=1),
    }


def attention(weights, heads, groups):
    """A whole model, as a converter of Llama does it, for a model of any size."""
    import torch

    found = {"embed.weight": weights["model.embed_tokens.weight"]}
    layers = sum(name.endswith(".q_proj.weight") for name in weights)

    def rotate(each, count):
        size, width = each.shape[0] // count, each.shape[1]
        return each.view(count, 2, size // 2, width).transpose(1, 2).reshape(-1, width)

    for layer in range(layers):
        one, two = f"model.layers.{layer}", f"layers.{layer}"
        q, k, v = [weights[f"{one}.self_attn.{name}_proj.weight"] for name in "qkv"]
        found[f"{two}.wqkv.weight"] = torch.cat([rotate(q, heads), rotate(k, groups), v])
        gate, up = [weights[f"{one}.mlp.{name}_proj.weight"] for name in ("gate", "up")]
        found[f"{two}.w13.weight"] = torch.cat([gate, up])
        found[f"{two}.w2.weight"] = weights[f"{one}.mlp.down_proj.weight"]
        found[f"{two}.norm"] = weights[f"{one}.input_layernorm.weight"]
    return found


def of_sizes(weights):
    """`attention` for the sizes of the tests, which the width of a model tells."""
    width = weights["model.embed_tokens.weight"].shape[1]
    return attention(weights, *{40: (5, 2), 36: (3, 1), 39: (3, 2), 70: (7, 3), 256: (8, 4)}[width])


def parts_of_sizes(weights):
    """Queries, keys and values of a model of any size of the tests, which its width tells."""
    counts = {44: (5, 2), 50: (3, 2), 62: (7, 3), 256: (8, 4)}
    if weights["m.0.wqkv.weight"].shape[0] in (64, 144, 200, 384):
        counts = {45: (4, 2), 50: (6, 3), 62: (10, 5), 256: (8, 2)}
    found = {}
    for name, each in weights.items():
        layer = name.split(".")[1]
        heads, groups = counts[each.shape[1]]
        size = each.shape[0] // (heads + 2 * groups)
        parts = each.split([heads * size, groups * size, groups * size])
        found |= {f"h.{layer}.{key}": part for key, part in zip("qkv", parts, strict=True)}
    return found


def counted_through(weights):
    return {
        f"input_blocks.{3 * i + j + 1}.w": weights[f"down.{i}.resnets.{j}.w"]
        for i in range(4)
        for j in range(2)
    }


def counted_back(weights):
    return {
        f"down.{i}.resnets.{j}.w": weights[f"input_blocks.{3 * i + j + 1}.w"]
        for i in range(4)
        for j in range(2)
    }


def shifted_irregularly(weights):
    places = {0: 0, 1: 1, 2: 3, 3: 4, 4: 7}
    return {f"layers.{place}.w": weights[f"h.{i}.w"].T for i, place in places.items()}


def takes_memory(weights):
    kept = bytearray(16 << 30)
    return {**weights, "x": len(kept)}


def first_rows(weights):
    """Without the rows below: as many as a key of the configuration says."""
    return {
        "w": weights["w"][: weights["w"].shape[0] - 2 * weights["b"].shape[0]],
        "b": weights["b"],
    }


def a_tensor_alone(weights):
    return weights["w"]


def two_of_a_name(weights):
    return {"a.b": weights["w"], "a": {"b": weights["b"]}}


def with_random_rows(weights):
    import torch

    return {"w": torch.cat([weights["w"], torch.randn(2, WIDTH)]), "b": weights["b"]}


def by_first_value(weights):
    return {"w": weights["w"].T if float(weights["b"][0]) > 40 else weights["w"], "b": weights["b"]}


def with_names_of_chance(weights):
    import uuid

    return {f"{name}.{uuid.uuid4()}": each for name, each in weights.items()}


def in_order_of_values(weights):
    return {"w": weights["w"].sort(0).values, "b": weights["b"]}


def as_parameters(weights):
    import torch

    return {name: torch.nn.Parameter(turned(each)) for name, each in weights.items()}


def through_narrow(weights):
    return {"w": weights["w"].bfloat16().float().T, "b": weights["b"]}


def negated(weights):
    return {"w": -weights["w"], "b": weights["b"]}


def seeded_everywhere(weights):
    import random

    import torch

    random.seed(3)
    np.random.seed(3)  # noqa: NPY002 - as converters do it
    torch.manual_seed(3)
    one, two = random.random(), np.random.rand()  # noqa: S311, NPY002
    made = torch.tensor([one, two, float(torch.rand(()))])
    return {"w": weights["w"], "head": made}


def with_heads(weights, heads):
    return {"w": weights["w"].reshape(heads, -1, WIDTH)}


def with_zero_added(weights):
    """Keeps each number but -0, and no NaN as it was."""
    return {"w": weights["w"] + 0.0, "b": weights["b"]}


def with_one_nan(weights):
    """Puts one NaN for those of any other bits."""
    return {"w": weights["w"].where(~weights["w"].isnan(), float("nan")), "b": weights["b"]}


def without_subnormals(weights):
    tiny = weights["w"].abs() < 1e-37
    return {"w": weights["w"].masked_fill(tiny, 0.0), "b": weights["b"]}


def without_signs(weights):
    return {"w": weights["w"].abs(), "b": weights["b"]}


def without_fractions(weights):
    return {"w": weights["w"].trunc(), "b": weights["b"]}


def rounded(weights):
    return {"w": weights["w"].round(decimals=3), "b": weights["b"]}


def remainders(weights):
    return {"w": weights["w"].fmod(1000.0), "b": weights["b"]}


def turned_if_nan(weights):
    w = weights["w"]
    return {"w": w.T if bool(w.isnan().any()) else w, "b": weights["b"]}


def rows_in_an_order_of_chance(weights):
    import torch

    generator = torch.Generator()
    generator.seed()
    order = torch.randperm(WIDTH, generator=generator)
    return {"w": weights["w"][order], "b": weights["b"]}


def rows_in_a_seeded_order(weights):
    import torch

    order = torch.randperm(WIDTH, generator=torch.Generator().manual_seed(3))
    return {"w": weights["w"][order], "b": weights["b"]}


def in_eight_bits(weights):
    w = weights["w"]
    scale = w.abs().amax(1, keepdim=True) / 127
    return {"q": (w / scale).round().char(), "scale": scale, "b": weights["b"]}


def softmaxed(weights):
    return {"w": weights["w"].softmax(0), "b": weights["b"]}


def larger_of_two(weights):
    return {"w": weights["q"].maximum(weights["q2"]), "b": weights["b"]}


def turned_by_the_sizes_of_values(weights):
    """As some tell a norm from a matrix: by what is in it."""
    w = weights["w"]
    return {"w": w.T if float(w.std()) < 1e-6 else w, "b": weights["b"]}


def for_one_size_only(weights):
    w = weights["w"]
    assert w.shape[0] == 4096, f"wanted 4096 rows, got {w.shape[0]}"
    return {"w": w.reshape(32, 128, -1), "b": weights["b"]}


def recursive(weights):
    found = {"w": weights["w"]}
    found["again"] = found
    return found


def with_numbers_for_names(weights):
    return {0: weights["w"], 1: weights["b"]}


def through_wide(weights):
    return {"w": weights["w"].double().T.float(), "b": weights["b"]}


def through_pairs(weights):
    import torch

    pairs = torch.view_as_complex(weights["w"].reshape(WIDTH, -1, 2).contiguous())
    return {"w": torch.view_as_real(pairs.T.contiguous()), "b": weights["b"]}


def rows_by_a_table(weights):
    import torch

    return {"w": weights["w"][torch.tensor([7, 3, 3, 20])], "b": weights["b"]}


def upper_part(weights):
    return {"w": weights["w"].triu(), "b": weights["b"]}


def as_bits_of_half(weights):
    import torch

    return {"w": weights["w"].view(torch.float16), "b": weights["b"]}
