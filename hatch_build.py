"""Builds the extensions in C, where that is possible; else the wheel is one of Python alone."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = (
    "src/tensorferry/host/_casts.c",
    "src/tensorferry/host/_joins.c",
    "src/tensorferry/sequences/_fill.c",
    "src/tensorferry/backends/torch/_tensors.c",
    "src/tensorferry/trees/_walks.c",
)


class ExtensionHook(BuildHookInterface):  # type: ignore[type-arg, misc, unused-ignore]
    """Compiles with the compiler that Python was configured with, for every CPython from 3.11."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the extensions to a wheel, or to the sources of an editable install."""
        sources, why = [Path(self.root, source) for source in SOURCES], _why_not()
        for source in sources if version == "editable" else ():
            for earlier in (
                *source.parent.glob(f"{source.stem}*.so"),
                *source.parent.glob(f"{source.stem}*.pyd"),
            ):
                earlier.unlink()
        if why is None:
            try:
                built = [_compile(source) for source in sources]
            except (Exception, SystemExit) as error:  # noqa: BLE001 - no compiler, no headers, or whatever they say
                why = f"{type(error).__name__}: {error}"
        if why is not None:
            self.app.display_warning(
                f"tensorferry is built without its extensions, which is only slower: {why}"
            )
            return
        for source, made in zip(sources, built, strict=True):
            if version == "editable":
                shutil.copy(made, source.parent)
            else:
                place = source.parent.relative_to(Path(self.root, "src")) / made.name
                build_data["force_include"][str(made)] = place.as_posix()
        build_data["pure_python"] = False
        build_data["tag"] = (
            f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        )


def _compile(source: Path) -> Path:
    from setuptools import Distribution, Extension

    extension = Extension(source.stem, [str(source)], py_limited_api=True)
    command: Any = Distribution({"ext_modules": [extension]}).get_command_obj("build_ext")
    folder = tempfile.mkdtemp(prefix="tensorferry-")
    command.build_lib = command.build_temp = folder
    command.ensure_finalized()
    command.run()
    return Path(command.get_ext_fullpath(source.stem))


def _why_not() -> str | None:
    if os.environ.get("TENSORFERRY_NO_EXTENSION", "0") not in ("", "0"):
        return "TENSORFERRY_NO_EXTENSION is set"
    if sys.implementation.name != "cpython" or sys.version_info < (3, 11):
        return "it is for CPython 3.11 and later"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "it is for a Python with the interpreter's lock"
    return None
