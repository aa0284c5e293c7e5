"""Builds the extension that reads Python numbers, where that is possible; else the wheel is one of Python alone."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = "src/tensorferry/sequences/_fill.c"


class ExtensionHook(BuildHookInterface):  # type: ignore[type-arg, misc, unused-ignore]
    """Compiles with the compiler that Python was configured with, for every CPython from 3.11."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the extension to a wheel, or to the sources of an editable install."""
        folder, why = Path(self.root, SOURCE).parent, _why_not()
        if version == "editable":
            for earlier in (*folder.glob("_fill*.so"), *folder.glob("_fill*.pyd")):
                earlier.unlink()
        if why is None:
            try:
                built = self._compile()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - no compiler, no headers, or whatever they say
                why = f"{type(error).__name__}: {error}"
        if why is not None:
            self.app.display_warning(f"tensorferry is built without its extension, which is only slower: {why}")
            return
        if version == "editable":
            shutil.copy(built, folder)
        else:
            build_data["force_include"][str(built)] = f"tensorferry/sequences/{built.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def _compile(self) -> Path:
        from setuptools import Distribution, Extension

        extension = Extension("_fill", [str(Path(self.root, SOURCE))], py_limited_api=True)
        command: Any = Distribution({"ext_modules": [extension]}).get_command_obj("build_ext")
        folder = tempfile.mkdtemp(prefix="tensorferry-")
        command.build_lib = command.build_temp = folder
        command.ensure_finalized()
        command.run()
        return Path(command.get_ext_fullpath("_fill"))


def _why_not() -> str | None:
    if os.environ.get("TENSORFERRY_NO_EXTENSION", "0") not in ("", "0"):
        return "TENSORFERRY_NO_EXTENSION is set"
    if sys.implementation.name != "cpython" or sys.version_info < (3, 11):
        return "it is for CPython 3.11 and later"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "it is for a Python with the interpreter's lock"
    return None
