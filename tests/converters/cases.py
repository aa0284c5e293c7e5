"""All converters of others that are traced, of the libraries that are here."""

from __future__ import annotations

import importlib
from importlib import metadata
from pathlib import Path

import pytest

LISTED = Path(__file__).with_name("environment.txt")
MODULES = {
    "diffusers": "from_diffusers",
    "ai2-olmo-core": "from_olmo_core",
    "google-tunix": "from_tunix",
    "ibm-fms": "from_fms",
    "keras-hub": "from_keras_hub",
    "litgpt": "from_litgpt",
    "mlx-lm": "from_mlx",
    "timm": "from_timm",
    "torchtune": "from_torchtune",
    "transformer-lens": "from_transformer_lens",
    "transformers": "from_transformers",
}
"""The libraries, each with the module here that calls its converters."""


def pinned():
    """The release of each library that `make converters` installs."""
    lines = LISTED.read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def here(library):
    """Skip what needs a library that is not installed, or another release of it."""
    why = absent(library, pinned()[library])
    if why:
        pytest.skip(f"{library}: {why}")


def absent(library, release):
    """Why a library is not tried; empty if it is."""
    try:
        found = metadata.version(library).partition("+")[0]
    except metadata.PackageNotFoundError:
        return "it is not installed: make converters"
    return "" if found == release else f"it is {found}, and not {release}"


def cases():
    """Yield each library with each case of it; or with none, and why it is not tried."""
    for library, release in pinned().items():
        if library not in MODULES:
            continue
        why = absent(library, release)
        if why:
            yield library, None, why
            continue
        for case in importlib.import_module(f"tests.converters.{MODULES[library]}").CASES:
            yield library, case, ""
