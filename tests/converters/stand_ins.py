"""Stands in for libraries that converters import and do not use: trackers, data sets, kernels.

A library that is installed is itself. Anything of one that is not can be imported, called,
subclassed and used as a decorator; what a converter did with it would be no tensor, and seen.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types

NAMES = frozenset(
    {
        "blobfile",
        "cached_path",
        "bettermap",
        "dataclass_extensions",
        "datasets",
        "ftfy",
        "grain",
        "jsonargparse",
        "kagglehub",
        "kagglesdk",
        "lightning",
        "metrax",
        "pandas",
        "perfetto",
        "qwix",
        "tensorflow_datasets",
        "tensorflow_text",
        "torchao",
        "torchdata",
        "torchvision",
        "transformers_stream_generator",
        "wandb",
    }
)


class Anything:
    """What is in a library that is not here."""

    def __init__(self, *_args, **_keywords):
        pass

    def __call__(self, *args, **keywords):
        if len(args) == 1 and callable(args[0]) and not keywords:
            return args[0]
        return self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __getitem__(self, _key):
        return self

    def __iter__(self):
        return iter(())

    def __or__(self, _other):
        return self

    __ror__ = __or__

    def __mro_entries__(self, _bases):
        return (object,)

    def __instancecheck__(self, _instance):
        return False


class StandIn(types.ModuleType):
    """A module that has whatever is asked for."""

    __path__ = ()
    __version__ = "0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds those that nobody else finds."""

    def find_spec(self, name, _path=None, _target=None):
        if name.partition(".")[0] in NAMES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


def install():
    """Let libraries be imported that need others for other things than converting."""
    if not any(isinstance(each, Finder) for each in sys.meta_path):
        sys.meta_path.append(Finder())


def without_what_it_imports(name):
    """Let modules of a package be imported without what the package itself imports."""
    if name not in sys.modules:
        module = types.ModuleType(name)
        module.__path__ = importlib.util.find_spec(name).submodule_search_locations
        sys.modules[name] = module
