"""torchtune's converters between Meta's, Hugging Face's and its own names and layouts."""

from __future__ import annotations

from functools import partial

from tests.converters import stand_ins
from tests.converters.sources import Case, headers, made, named

stand_ins.install()

from torchtune.models import convert_weights  # noqa: E402
from torchtune.models.clip._convert_weights import clip_text_hf_to_tune  # noqa: E402
from torchtune.models.flux._convert_weights import flux_ae_hf_to_tune  # noqa: E402
from torchtune.models.gemma2 import _convert_weights as gemma2  # noqa: E402
from torchtune.models.llama3_2_vision import _convert_weights as vision  # noqa: E402
from torchtune.models.phi3 import _convert_weights as phi3  # noqa: E402
from torchtune.models.qwen2 import _convert_weights as qwen2  # noqa: E402
from torchtune.models.t5._convert_weights import t5_encoder_hf_to_tune  # noqa: E402

HEADS = {"num_heads": 4, "num_kv_heads": 2, "dim": 24}
WIDE = {**HEADS, "head_dim": 10}


def llama_to_tune(weights):
    return convert_weights.hf_to_tune(weights, **HEADS)


def llama_to_hf(weights):
    return convert_weights.tune_to_hf(weights, **HEADS)


def meta_to_tune(weights):
    return convert_weights.meta_to_tune(weights)


def tune_to_meta(weights):
    return convert_weights.tune_to_meta(weights)


def qwen2_to_tune(weights):
    return qwen2.qwen2_hf_to_tune(weights, **HEADS)


def qwen2_to_hf(weights):
    return qwen2.qwen2_tune_to_hf(weights, **HEADS)


def phi3_to_tune(weights):
    return phi3.phi3_hf_to_tune(weights, **HEADS)


def phi3_to_hf(weights):
    return phi3.phi3_tune_to_hf(weights)


def gemma2_to_tune(weights):
    return gemma2.gemma2_hf_to_tune(weights, **WIDE)


def gemma2_to_hf(weights):
    return gemma2.gemma2_tune_to_hf(weights, **WIDE)


def clip_to_tune(weights):
    return clip_text_hf_to_tune(weights)


def t5_to_tune(weights):
    return t5_encoder_hf_to_tune(weights)


def autoencoder_to_tune(weights):
    return flux_ae_hf_to_tune(weights)


def vision_to_tune(weights):
    return vision.llama3_vision_meta_to_tune(weights)


def vision_to_meta(weights):
    return vision.llama3_vision_tune_to_meta(weights)


META = """
tok_embeddings.weight 50 24
norm.weight 24
output.weight 50 24
rope.freqs 3
layers.{3}.attention_norm.weight 24
layers.{3}.ffn_norm.weight 24
layers.{3}.attention.wq.weight 24 24
layers.{3}.attention.wk.weight 12 24
layers.{3}.attention.wv.weight 12 24
layers.{3}.attention.wo.weight 24 24
layers.{3}.feed_forward.w1.weight 40 24
layers.{3}.feed_forward.w2.weight 24 40
layers.{3}.feed_forward.w3.weight 40 24
"""
CROSSED = """
text_model.tok_embeddings.weight 50 24
text_model.learnable_embedding.weight 8 24
text_model.norm.weight 24
text_model.output.weight 50 24
text_model.rope.freqs 3
text_model.layers.{6}.attention_norm.weight 24
text_model.layers.{6}.attention.wq.weight 24 24
text_model.layers.{6}.attention.wk.weight 12 24
text_model.layers.{6}.attention.wv.weight 12 24
text_model.layers.{6}.attention.wo.weight 24 24
text_model.layers.{6}.ffn_norm.weight 24
text_model.layers.{6}.feed_forward.w1.weight 40 24
text_model.layers.{6}.feed_forward.w2.weight 24 40
text_model.layers.{6}.feed_forward.w3.weight 40 24
text_model.cross_attention_layers.{2}.gate_attn 1
text_model.cross_attention_layers.{2}.gate_ffwd 1
text_model.cross_attention_layers.{2}.attention_norm.weight 24
text_model.cross_attention_layers.{2}.ffn_norm.weight 24
text_model.cross_attention_layers.{2}.attention.wq.weight 24 24
text_model.cross_attention_layers.{2}.attention.wk.weight 12 24
text_model.cross_attention_layers.{2}.attention.wv.weight 12 24
text_model.cross_attention_layers.{2}.attention.wo.weight 24 24
text_model.cross_attention_layers.{2}.attention.q_norm.weight 6
text_model.cross_attention_layers.{2}.attention.k_norm.weight 6
text_model.cross_attention_layers.{2}.feed_forward.w1.weight 40 24
text_model.cross_attention_layers.{2}.feed_forward.w2.weight 24 40
text_model.cross_attention_layers.{2}.feed_forward.w3.weight 40 24
vision_model.vision_encoder.positional_embedding 17 20
vision_model.vision_encoder.gated_positional_embedding 4 4 17 20
vision_model.vision_encoder.gated_positional_embedding_gate 1
vision_model.vision_encoder.ln_pre.weight 20
vision_model.vision_encoder.ln_pre.bias 20
vision_model.vision_encoder.class_embedding 20
vision_model.vision_encoder.conv1._linear.weight 20 147
vision_model.vision_encoder.transformer.resblocks.{3}.attn.wq.weight 20 20
vision_model.vision_encoder.transformer.resblocks.{3}.mlp.c_fc.weight 30 20
vision_model.vision_encoder.transformer.resblocks.{3}.mlp.c_fc.bias 30
vision_model.vision_projection.weight 24 60
vision_model.vision_projection.bias 24
"""
AUTOENCODER = """
encoder.conv_in.weight 8 3 3 3
encoder.conv_in.bias 8
encoder.norm_out.weight 16
encoder.norm_out.bias 16
encoder.conv_out.weight 4 16 3 3
encoder.down.{4}.block.{2}.norm1.weight 8
encoder.down.{4}.block.{2}.norm1.bias 8
encoder.down.{4}.block.{2}.conv1.weight 8 8 3 3
encoder.down.{4}.block.{2}.conv2.weight 8 8 3 3
encoder.down.{3}.downsample.conv.weight 8 8 3 3
encoder.down.{3}.downsample.conv.bias 8
encoder.down.1.block.0.nin_shortcut.weight 8 8 1 1
encoder.mid.block_1.conv1.weight 16 16 3 3
encoder.mid.attn_1.norm.weight 16
encoder.mid.attn_1.q.weight 16 16 1 1
encoder.mid.attn_1.q.bias 16
encoder.mid.attn_1.k.weight 16 16 1 1
encoder.mid.attn_1.v.weight 16 16 1 1
encoder.mid.attn_1.proj_out.weight 16 16 1 1
encoder.mid.block_2.conv1.weight 16 16 3 3
decoder.conv_in.weight 16 4 3 3
decoder.up.{4}.block.{3}.norm1.weight 8
decoder.up.{4}.block.{3}.conv1.weight 8 8 3 3
decoder.up.{4}.block.{3}.conv2.weight 8 8 3 3
decoder.up.1.upsample.conv.weight 8 8 3 3
decoder.up.2.upsample.conv.weight 8 8 3 3
decoder.up.3.upsample.conv.weight 8 8 3 3
decoder.up.{4}.block.{3}.conv1.bias 8
decoder.up.1.upsample.conv.bias 8
decoder.up.2.upsample.conv.bias 8
decoder.up.3.upsample.conv.bias 8
decoder.norm_out.weight 8
decoder.conv_out.weight 3 8 3 3
"""


def back(convert, source):
    return lambda: made(convert, source())


def llama():
    return headers("LlamaForCausalLM")


def qwen():
    return headers("Qwen2ForCausalLM")


def phi():
    return headers("Phi3ForCausalLM")


def gemma():
    return headers("Gemma2ForCausalLM", head_dim=10, tie_word_embeddings=True)


def clip():
    text = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "vocab_size": 50}
    image = {
        "hidden_size": 20,
        "intermediate_size": 30,
        "num_hidden_layers": 1,
        "patch_size": 16,
        "image_size": 32,
    }
    heads = {"num_attention_heads": 4}
    return headers_of_clip(text | heads, image | heads)


def headers_of_clip(text, image):
    import transformers
    from tests.converters.sources import infos

    config = transformers.CLIPConfig(text_config=text, vision_config=image, projection_dim=12)
    return infos(transformers.CLIPModel(config).state_dict())


def t5():
    return headers(
        "T5ForConditionalGeneration",
        d_model=24,
        d_kv=6,
        d_ff=40,
        num_layers=3,
        num_heads=4,
        feed_forward_proj="gated-gelu",
    )


MODULE = "torchtune.models"
CASES = (
    Case(f"{MODULE}.convert_weights.hf_to_tune", llama_to_tune, llama, most=12),
    Case(f"{MODULE}.convert_weights.tune_to_hf", llama_to_hf, back(llama_to_tune, llama)),
    Case(
        f"{MODULE}.convert_weights.meta_to_tune",
        meta_to_tune,
        partial(named, META),
        dropped=("rope.freqs",),
    ),
    Case(
        f"{MODULE}.convert_weights.tune_to_meta",
        tune_to_meta,
        back(meta_to_tune, partial(named, META)),
    ),
    Case(f"{MODULE}.qwen2.qwen2_hf_to_tune", qwen2_to_tune, qwen),
    Case(f"{MODULE}.qwen2.qwen2_tune_to_hf", qwen2_to_hf, back(qwen2_to_tune, qwen)),
    Case(f"{MODULE}.phi3.phi3_hf_to_tune", phi3_to_tune, phi),
    Case(f"{MODULE}.phi3.phi3_tune_to_hf", phi3_to_hf, back(phi3_to_tune, phi)),
    Case(f"{MODULE}.gemma2.gemma2_hf_to_tune", gemma2_to_tune, gemma),
    Case(f"{MODULE}.gemma2.gemma2_tune_to_hf", gemma2_to_hf, back(gemma2_to_tune, gemma)),
    Case(
        f"{MODULE}.clip.clip_text_hf_to_tune",
        clip_to_tune,
        clip,
        dropped=("vision_model.*", "logit_scale", "*_projection.weight"),
    ),
    Case(
        f"{MODULE}.t5.t5_encoder_hf_to_tune",
        t5_to_tune,
        t5,
        dropped=("decoder.*", "shared.weight", "lm_head.weight"),
    ),
    Case(f"{MODULE}.flux.flux_ae_hf_to_tune", autoencoder_to_tune, partial(named, AUTOENCODER)),
    Case(
        f"{MODULE}.llama3_2_vision.llama3_vision_meta_to_tune",
        vision_to_tune,
        partial(named, CROSSED),
        dropped=("text_model.rope.freqs",),
    ),
    Case(
        f"{MODULE}.llama3_2_vision.llama3_vision_tune_to_meta",
        vision_to_meta,
        back(vision_to_tune, partial(named, CROSSED)),
    ),
)
