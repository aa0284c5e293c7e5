"""timm's filters of files that others saved, for its own models."""

from __future__ import annotations

from functools import partial

from tests.converters import stand_ins
from tests.converters.sources import Case, named

stand_ins.install()

from timm.models import convnext, vision_transformer  # noqa: E402


def from_facebook(weights):
    model = convnext.ConvNeXt(depths=(2, 1, 1, 1), dims=(8, 12, 16, 20), num_classes=10)
    return convnext.checkpoint_filter_fn(weights, model)


def image_model(size):
    return vision_transformer.VisionTransformer(
        img_size=size,
        patch_size=8,
        embed_dim=24,
        depth=2,
        num_heads=4,
        num_classes=10,
        pre_norm=True,
    )


def from_clip(weights):
    return vision_transformer.checkpoint_filter_fn(weights, image_model(32))


def from_clip_of_another_size(weights):
    return vision_transformer.checkpoint_filter_fn(weights, image_model(48))


def from_dino(weights):
    return vision_transformer.checkpoint_filter_fn(weights, image_model(32))


FACEBOOK = """
downsample_layers.0.0.weight 8 3 4 4
downsample_layers.0.0.bias 8
downsample_layers.0.1.weight 8
downsample_layers.0.1.bias 8
downsample_layers.1.0.weight 8
downsample_layers.1.0.bias 8
downsample_layers.1.1.weight 12 8 2 2
downsample_layers.1.1.bias 12
stages.0.{2}.gamma 8
stages.0.{2}.dwconv.weight 8 1 7 7
stages.0.{2}.dwconv.bias 8
stages.0.{2}.norm.weight 8
stages.0.{2}.norm.bias 8
stages.0.{2}.pwconv1.weight 32 8
stages.0.{2}.pwconv1.bias 32
stages.0.{2}.pwconv2.weight 8 32
stages.0.{2}.pwconv2.bias 8
downsample_layers.2.1.weight 16 12 2 2
downsample_layers.3.1.weight 20 16 2 2
stages.2.0.dwconv.weight 16 1 7 7
stages.2.0.pwconv1.weight 64 16
stages.3.0.pwconv1.weight 80 20
stages.1.{1}.gamma 12
stages.1.{1}.dwconv.weight 12 1 7 7
stages.1.{1}.pwconv1.weight 48 12
stages.1.{1}.pwconv2.weight 12 48
norm.weight 20
norm.bias 20
head.weight 10 20
head.bias 10
"""
CLIP = """
visual.class_embedding 24
visual.positional_embedding 17 24
visual.proj 24 10
visual.conv1.weight 24 3 8 8
visual.ln_pre.weight 24
visual.ln_pre.bias 24
visual.transformer.resblocks.{2}.attn.in_proj_weight 72 24
visual.transformer.resblocks.{2}.attn.in_proj_bias 72
visual.transformer.resblocks.{2}.attn.out_proj.weight 24 24
visual.transformer.resblocks.{2}.attn.out_proj.bias 24
visual.transformer.resblocks.{2}.ln_1.weight 24
visual.transformer.resblocks.{2}.ln_1.bias 24
visual.transformer.resblocks.{2}.ln_2.weight 24
visual.transformer.resblocks.{2}.mlp.c_fc.weight 96 24
visual.transformer.resblocks.{2}.mlp.c_fc.bias 96
visual.transformer.resblocks.{2}.mlp.c_proj.weight 24 96
visual.ln_post.weight 24
visual.ln_post.bias 24
token_embedding.weight 50 20
logit_scale
"""
DINO = """
mask_token 1 24
cls_token 1 1 24
pos_embed 1 17 24
patch_embed.proj.weight 24 3 8 8
patch_embed.proj.bias 24
blocks.{2}.mlp.w12.weight 64 24
blocks.{2}.mlp.w12.bias 64
blocks.{2}.mlp.w3.weight 24 32
blocks.{2}.ls1.gamma 24
norm.weight 24
"""
TEXT = ("token_embedding.weight", "logit_scale")
VIT = "timm.models.vision_transformer.checkpoint_filter_fn"
CASES = (
    Case("timm.models.convnext.checkpoint_filter_fn", from_facebook, partial(named, FACEBOOK)),
    Case(f"{VIT} (OpenCLIP)", from_clip, partial(named, CLIP), dropped=TEXT),
    Case(
        f"{VIT} (another size)",
        from_clip_of_another_size,
        partial(named, CLIP),
        reasons={"pos_embed": "arithmetic"},
        dropped=TEXT,
    ),
    Case(f"{VIT} (DINOv2)", from_dino, partial(named, DINO), dropped=("mask_token",)),
)
