"""diffusers' converters of single files: Stable Diffusion's names of old to its own."""

from __future__ import annotations

from functools import partial

import torch
from diffusers.loaders import single_file_utils as files
from tests.converters.sources import Case, infos, named

UNET = {
    "block_out_channels": (8, 16, 24, 32),
    "layers_per_block": 2,
    "cross_attention_dim": 20,
    "attention_head_dim": 4,
    "norm_num_groups": 4,
    "sample_size": 16,
}
RENAMED = (
    ("norm1", "in_layers.0"),
    ("conv1", "in_layers.2"),
    ("norm2", "out_layers.0"),
    ("conv2", "out_layers.3"),
    ("time_emb_proj", "emb_layers.1"),
    ("conv_shortcut", "skip_connection"),
)
ENDS = {
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "conv_in": "input_blocks.0.0",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
    "mid_block.resnets.0": "middle_block.0",
    "mid_block.attentions.0": "middle_block.1",
    "mid_block.resnets.1": "middle_block.2",
}


def old_name(name):
    """The name that a tensor of a UNet had in the files of Stable Diffusion."""
    for end, other in ENDS.items():
        if name.startswith(end):
            return as_resnet(name, other + name[len(end) :])
    side, block, kind, number, rest = name.split(".", 4)
    at = 3 * int(block) + int(number) + (side == "down_blocks")
    place = "input_blocks" if side == "down_blocks" else "output_blocks"
    if kind == "resnets":
        return as_resnet(name, f"{place}.{at}.0.{rest}")
    if kind == "attentions":
        return f"{place}.{at}.1.{rest}"
    if kind == "downsamplers":
        return f"{place}.{at + 2}.0.{rest.replace('conv', 'op')}"
    return f"{place}.{at + 2}.{1 if block == '0' else 2}.{rest}"


def as_resnet(name, old):
    if "resnets" not in name:
        return old
    for ours, theirs in RENAMED:
        old = old.replace(ours, theirs)
    return old


def unet(**config):
    from diffusers import UNet2DConditionModel

    with torch.device("meta"):
        model = UNet2DConditionModel(**{**UNET, **config})
    tensors = infos(model.state_dict())
    return {f"model.diffusion_model.{old_name(name)}": each for name, each in tensors.items()}


def unet_to_diffusers(weights):
    return files.convert_ldm_unet_checkpoint(weights, {**UNET})


def autoencoder_to_diffusers(weights):
    kinds = {"down_block_types": range(4), "up_block_types": range(4)}
    return files.convert_ldm_vae_checkpoint(weights, kinds)


def clip_to_diffusers(weights):
    return files.convert_ldm_clip_checkpoint(weights)


def stable_cascade(weights):
    return files.convert_stable_cascade_unet_single_file_to_diffusers(weights)


def flux(weights):
    return files.convert_flux_transformer_checkpoint_to_diffusers(weights)


def autoencoder():
    from tests.converters.from_torchtune import AUTOENCODER

    return {f"first_stage_model.{name}": each for name, each in named(AUTOENCODER).items()}


CLIP = """
cond_stage_model.transformer.text_model.embeddings.token_embedding.weight 50 24
cond_stage_model.transformer.text_model.embeddings.position_embedding.weight 20 24
cond_stage_model.transformer.text_model.encoder.layers.{3}.self_attn.q_proj.weight 24 24
cond_stage_model.transformer.text_model.encoder.layers.{3}.self_attn.q_proj.bias 24
cond_stage_model.transformer.text_model.encoder.layers.{3}.layer_norm1.weight 24
cond_stage_model.transformer.text_model.encoder.layers.{3}.mlp.fc1.weight 40 24
cond_stage_model.transformer.text_model.final_layer_norm.weight 24
"""
CASCADE = """
clip_mapper.weight 30 24
clip_mapper.bias 30
down_blocks.{2}.{3}.attention.attn.in_proj_weight 72 24
down_blocks.{2}.{3}.attention.attn.in_proj_bias 72
down_blocks.{2}.{3}.attention.attn.out_proj.weight 24 24
down_blocks.{2}.{3}.attention.attn.out_proj.bias 24
down_blocks.{2}.{3}.channelwise.0.weight 40 24
"""
FLUX = """
time_in.in_layer.weight 3072 5
time_in.in_layer.bias 6
time_in.out_layer.weight 6 6
time_in.out_layer.bias 6
vector_in.in_layer.weight 6 7
vector_in.in_layer.bias 6
vector_in.out_layer.weight 6 6
vector_in.out_layer.bias 6
txt_in.weight 6 8
txt_in.bias 6
img_in.weight 6 9
img_in.bias 6
double_blocks.{2}.img_mod.lin.weight 36 6
double_blocks.{2}.img_mod.lin.bias 36
double_blocks.{2}.txt_mod.lin.weight 36 6
double_blocks.{2}.txt_mod.lin.bias 36
double_blocks.{2}.img_attn.qkv.weight 18 6
double_blocks.{2}.img_attn.qkv.bias 18
double_blocks.{2}.txt_attn.qkv.weight 18 6
double_blocks.{2}.txt_attn.qkv.bias 18
double_blocks.{2}.img_attn.norm.query_norm.scale 3
double_blocks.{2}.img_attn.norm.key_norm.scale 3
double_blocks.{2}.txt_attn.norm.query_norm.scale 3
double_blocks.{2}.txt_attn.norm.key_norm.scale 3
double_blocks.{2}.img_mlp.0.weight 10 6
double_blocks.{2}.img_mlp.0.bias 10
double_blocks.{2}.img_mlp.2.weight 6 10
double_blocks.{2}.img_mlp.2.bias 6
double_blocks.{2}.txt_mlp.0.weight 10 6
double_blocks.{2}.txt_mlp.0.bias 10
double_blocks.{2}.txt_mlp.2.weight 6 10
double_blocks.{2}.txt_mlp.2.bias 6
double_blocks.{2}.img_attn.proj.weight 6 6
double_blocks.{2}.img_attn.proj.bias 6
double_blocks.{2}.txt_attn.proj.weight 6 6
double_blocks.{2}.txt_attn.proj.bias 6
single_blocks.{3}.modulation.lin.weight 18 6
single_blocks.{3}.modulation.lin.bias 18
single_blocks.{3}.linear1.weight 21504 2
single_blocks.{3}.linear1.bias 21504
single_blocks.{3}.norm.query_norm.scale 3
single_blocks.{3}.norm.key_norm.scale 3
single_blocks.{3}.linear2.weight 6 16
single_blocks.{3}.linear2.bias 6
final_layer.linear.weight 4 6
final_layer.linear.bias 4
final_layer.adaLN_modulation.1.weight 12 6
final_layer.adaLN_modulation.1.bias 12
"""
MODULE = "diffusers.loaders.single_file_utils"
CASES = (
    Case(f"{MODULE}.convert_ldm_unet_checkpoint", unet_to_diffusers, unet, most=60),
    Case(f"{MODULE}.convert_ldm_vae_checkpoint", autoencoder_to_diffusers, autoencoder),
    Case(f"{MODULE}.convert_ldm_clip_checkpoint", clip_to_diffusers, partial(named, CLIP)),
    Case(
        f"{MODULE}.convert_stable_cascade_unet_single_file_to_diffusers",
        stable_cascade,
        partial(named, CASCADE),
    ),
    Case(f"{MODULE}.convert_flux_transformer_checkpoint_to_diffusers", flux, partial(named, FLUX)),
)
