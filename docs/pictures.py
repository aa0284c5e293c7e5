"""Make what is drawn or shown by code and kept in the repository: `make pictures`."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat

import tensorferry as ferry
from tensorferry.planning.pictures.memory import memory_picture

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
STATIC = ROOT / "docs" / "_static"


def drawn() -> dict[Path, str]:
    """The pictures, by their files."""
    gpu = ferry.TensorInfo("torch", (256, 1024), "float32", device="cuda:0", requires_grad=True)
    return {
        STATIC / "plan.svg": f"{memory_picture(ferry.explain(gpu, 'numpy', dtype='bfloat16'))}\n"
    }


def main() -> None:
    """Write all of it."""
    for file, text in drawn().items():
        file.write_text(text, encoding="utf-8")
    sys.path.insert(0, str(ROOT))  # for the cases of the tour
    from notebooks import executed, tour

    memory = EXAMPLES / "memory.ipynb"
    made = {EXAMPLES / "tour.ipynb": tour(), memory: nbformat.read(memory, as_version=4)}
    for file, notebook in made.items():
        nbformat.write(executed(notebook, EXAMPLES), file)


if __name__ == "__main__":
    main()
