"""OLMo-core's converters between Hugging Face's and its own names and layouts."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

from tests.converters import stand_ins
from tests.converters.sources import Case, headers, made

stand_ins.install()

from olmo_core.nn.hf import convert  # noqa: E402


def settings(kind, **config):
    small = {"num_hidden_layers": 2, "tie_word_embeddings": False, "model_type": kind}
    return SimpleNamespace(**{**small, **config})


def olmo(weights):
    return convert.convert_state_from_hf(settings("olmo2"), weights, model_type="olmo2")


def olmo_back(weights):
    return convert.convert_state_to_hf(settings("olmo2"), weights)


def llama(weights):
    return convert.convert_state_from_hf(settings("llama"), weights, model_type="llama")


def flex(weights):
    config = settings("flex_olmo", num_experts=3)
    return convert.convert_state_from_hf(config, weights, model_type="flex_olmo")


OF_OLMO = partial(headers, "Olmo2ForCausalLM")
MODULE = "olmo_core.nn.hf.convert"
CASES = (
    Case(f"{MODULE}.convert_state_from_hf (olmo2)", olmo, OF_OLMO),
    Case(f"{MODULE}.convert_state_to_hf (olmo2)", olmo_back, lambda: made(olmo, OF_OLMO())),
    Case(f"{MODULE}.convert_state_from_hf (llama)", llama, partial(headers, "LlamaForCausalLM")),
    Case(
        f"{MODULE}.convert_state_from_hf (flex_olmo)",
        flex,
        partial(headers, "FlexOlmoForCausalLM", num_experts=3),
    ),
)
