"""The places whose hints are not pasted, each with its reason."""

from __future__ import annotations

from typing import NamedTuple

MOST = 25
"""How many places there may be."""


class Place(NamedTuple):
    """A place whose hint cannot be tried."""

    module: str
    """The module in which the hint is written, below ``src/tensorferry``."""
    hint: str
    """A pattern for the whole hint."""
    reason: str
    """Why it cannot be tried."""


PLACES: tuple[Place, ...] = (
    Place(
        "backends/no_tensor.py",
        "an object of it",
        "which object of a class is meant only its user knows",
    ),
    Place(
        "backends/polars/tensors.py",
        r"frame\.select\(x\)",
        "of which frame an expression is computed only its user knows",
    ),
    Place(
        "backends",
        "convert before or after the traced function; inside it, .*|"
        "convert before it is donated, or jit without donate_argnums|(use|convert) it outside FakeTensorMode|"
        r".*convert it while its memory is there: .* says|keras\.Model\(inputs, x\)\(values\)",
        "the code that has to change is around the call: its values do not exist yet, or no longer",
    ),
    Place(
        "backends/array_like/protocols.py",
        r".*, which has to work by itself|np\.frombuffer\(.*, \"uint8\"\), or the dtype that is meant",
        "the object's own code fails, which the user has to mend",
    ),
    Place(
        "backends/torch/tensors.py",
        r"module\(inputs\) first, or .*\.materialize\(shape\)",
        "the shape comes from the module and its inputs",
    ),
    Place(
        "backends/array_like/protocols.py",
        "import (cupy|torch)|a copy of it, by its own library",
        "the library is another, for a device that is not here",
    ),
    Place(
        "backends/torch/declared.py",
        "the method of its class that gives a plain tensor",
        "a class of somebody's own, whose methods are not known",
    ),
    Place(
        "backends/python/tensors.py",
        r".*load\(.*\) if it is a path; .* if it is numbers|load\(x.*\)",
        "text is a path, or numbers, or neither: the user knows",
    ),
    Place(
        "files/base/format.py",
        r'(save\(x, os\.path.*)?shard="5GB".*',
        "how many tensors come into a shard of this size, their sizes say",
    ),
    Place(
        "files",
        r".*(get (the file|it|them) (again|too)|git lfs pull).*|tensorferry check .*|a file with .* in its place, .*|"
        r"a file with one object, .*|a folder with one of them each|a checkpoint that was saved without extensions|"
        r"ask its author for the weights alone|the path of its folder, with what the other processes saved: .*|"
        r"python -m (deepspeed|torch)\..*",
        "the file is damaged, or holds what is not read: another has to come from where it was made",
    ),
    Place(
        "files/pickles/standins.py",
        r"allow=\[.*",
        "what the file holds beside these names is known only when they are allowed",
    ),
    Place(
        "functions",
        r"apply, params.*|(convert\(x, .*\)|a (dict|tuple|dict or a tuple) of .*) where it returns|"
        r"a function without async, .*|draw them outside .*|(numpy\.\w+|float)\(number\).*|"
        r"operations of .*|tensors of .* from argument to result.*|pass (them as arguments|every argument).*|"
        r"take the state as an argument .*|tf\.random\.stateless_.*|the function without .*|torch\.enable_grad\(\), .*|"
        r"torch\.autograd\.grad\(y.*|x\.requires_grad_\(\) of the argument itself.*|x\.set_shape\(.*|"
        r"jax\.random\.key_data\(key\)|pad to one shape inside .*|"
        r"wrap\(function, inner=\"numpy\", (vjp|jvp)=.*",
        "what has to change is inside of the user's function, or is a derivative that its author knows",
    ),
    Place(
        "files/base/urls.py",
        r".*import (boto3|fsspec|urllib\.request)\b.*|.*from huggingface_hub import .*|(curl|hf|aws|gcloud) .*|"
        r"the path of a file here, such as .*",
        "it reads from a network, or writes there",
    ),
    Place(
        "files/opening/shards.py",
        "the path of a file in it",
        "which file of the folder is meant only its user knows",
    ),
    Place("columns/column.py", r".*PIL\.Image\.open.*", "the bytes in the tests are no images"),
    Place(
        "errors.py",
        r"pip install (-U |--upgrade |--no-deps )?[\w<>=. \"-]+",
        "it changes the environment in which the tests run, and reads the network",
    ),
)
