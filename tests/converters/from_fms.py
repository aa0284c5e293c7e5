"""IBM's foundation-model-stack: adapters from the names and layouts of others."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

from fms.models import get_model  # noqa: F401 - registers the adapters
from fms.utils.serialization import get_adapted
from tests.converters.from_torchtune import META
from tests.converters.sources import Case, headers, named

CONFIG = SimpleNamespace(
    nheads=4,
    kvheads=2,
    head_dim=6,
    emb_dim=24,
    fused_weights=True,
    linear_config=None,
    tie_heads=False,
)


def adapted(architecture, source, weights, **config):
    keywords = {"model_config": SimpleNamespace(**{**vars(CONFIG), **config})}
    return dict(get_adapted(architecture, source, weights, keywords))


def llama(weights):
    return adapted("llama", "hf", weights)


def llama_meta(weights):
    return adapted("llama", "meta", weights)


def granite(weights):
    return adapted("granite", "hf", weights)


def mistral(weights):
    return adapted("mistral", "hf", weights)


def qwen_3(weights):
    return adapted("qwen3", "hf", weights)


def bigcode(weights):
    return adapted("gpt_bigcode", "hf", weights)


def roberta(weights):
    return adapted("roberta", "hf", weights)


def bert(weights):
    return adapted("bert", "hf", weights)


def siglip(weights):
    return adapted("siglip_vision", "hf", weights)


def mpnet(weights):
    return adapted("mpnet", "hf", weights)


def of(kind, **config):
    return partial(headers, kind, **config)


def case(architecture, convert, source, **more):
    return Case(f"fms.utils.serialization.get_adapted {architecture}", convert, source, **more)


CASES = (
    case("llama hf", llama, of("LlamaForCausalLM")),
    case("llama meta", llama_meta, partial(named, META)),
    case("granite", granite, of("GraniteForCausalLM")),
    case("mistral", mistral, of("MistralForCausalLM")),
    case("qwen3", qwen_3, of("Qwen3ForCausalLM")),
    case(
        "gpt_bigcode",
        bigcode,
        of("GPTBigCodeForCausalLM", n_embd=24, n_layer=2, n_head=4, n_inner=40),
    ),
    case(
        "roberta",
        roberta,
        of("RobertaForMaskedLM"),
        dropped=("lm_head.bias", "*position_embeddings.weight"),
    ),
    case("bert", bert, of("BertForMaskedLM"), dropped=("cls.predictions.bias",)),
    case("siglip_vision", siglip, of("SiglipVisionModel", image_size=32, patch_size=16)),
    case("mpnet", mpnet, of("MPNetForMaskedLM")),
)
