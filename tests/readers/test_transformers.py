"""transformers' `from_pretrained` loads what tensorferry writes; see `make readers`."""

from __future__ import annotations

import pytest
import torch
from tests.readers.checkpoints import WAYS, same_bits, written

pytestmark = pytest.mark.slow

PROBLEMS = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")


def dtype_keyword(dtype):
    """The keyword for a dtype, which has another name since transformers 5."""
    import transformers

    return {"torch_dtype" if transformers.__version__.startswith("4.") else "dtype": dtype}


def model(dtype, *, tied):
    import transformers

    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
        # As config.json says it for `dtype="auto"`.
        **dtype_keyword(dtype),
    )
    return transformers.LlamaForCausalLM(config).to(dtype)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_model_loads_with_nothing_missing(tmp_path, way, tied, dtype):
    """Expected: nothing is missing or unexpected, and each weight has its dtype, bits and ties."""
    import transformers

    wanted = model(dtype, tied=tied)
    written(way, wanted.state_dict(), tmp_path / "model")
    wanted.config.save_pretrained(tmp_path / "model")
    # Another beginning for what would not be loaded.
    torch.manual_seed(8)
    found, told = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", output_loading_info=True, local_files_only=True, **dtype_keyword("auto")
    )
    assert {name: list(told[name]) for name in PROBLEMS} == {name: [] for name in PROBLEMS}
    same_bits(found.state_dict(), wanted.state_dict())
    assert (found.lm_head.weight is found.model.embed_tokens.weight) is tied
