"""Loops as people write them: what training code does at each step, beside the line that stands there.

Each row is a line of a kind of public training code, with the objects that such code really holds:
what `state_dict` returns, model outputs and encodings of transformers, optimizer states of optax,
transitions of a replay buffer. The comment above a row says which loop it is from. Both lines have
to give the same before they are timed. `library_loops.py` has those over other libraries' objects,
`structures.py` sizes of trees, first calls, and keywords.

Where the line by hand takes more than one expression, it is a function of `by_hand.py`.
"""

from __future__ import annotations

import importlib.util
import random
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from . import by_hand
from .case import Case, Pace, Section, Target
from .small import modules

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CHAIN",
    "FEW",
    "FEWEST",
    "LISTS",
    "LOOKS",
    "OFTEN",
    "SAME",
    "SECTIONS",
    "loops",
    "names",
    "network",
    "state_dict_of",
    "without",
]

OFTEN = Pace(rounds=60, batch=1e-3, best=True, limit=4.0)
"""Fewer rounds than for single calls: there are many rows, and their lines take longer."""

# What a line may take beside the one by hand: no more; or, where a sketch of nothing but the work and
# the checks that the memory contract asks for took more, what that took.

SAME = Target(ratio=1.0)
"""The line itself: its work is more than to look at each leaf, which we do besides."""

LOOKS = Target(ratio=1.2)
"""We look at the types and dtypes of some dozen leaves, or at addresses of hundreds; the line does not."""

FEW = Target(ratio=1.5)
"""The same for views, and for addresses of some dozen leaves: each takes less than a microsecond."""

FEWEST = Target(ratio=2.0)
"""The same for a handful of leaves: what one call takes is a good part of the whole."""

INTO = Target(ratio=2.3)
"""Shapes and addresses of both sides are looked at before anything is written."""

LISTS = Target(ratio=0.5)
"""Python numbers, which frameworks read one by one."""


def loops(
    title: str,
    world: Callable[[], dict[str, Any]],
    cases: tuple[Case, ...],
    *needs: str,
    pace: Pace = OFTEN,
) -> Section:
    """A section of this page: both sides have to give the same.

    Args:
        title: What its loops have in common.
        world: Makes the names that the lines use.
        cases: What is measured.
        *needs: The packages without which its objects cannot be made.
        pace: How often.
    """
    return Section(
        f"Loops: {title}", world, cases, pace, absent=lambda: without(*needs), checks=True
    )


def without(*packages: str) -> str | None:
    """Why loops over objects of some packages cannot be measured here; ``None`` if they can."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} not installed" if missing else None


def names() -> dict[str, Any]:
    """What all lines use: modules, and the lines by hand that are functions."""
    from torch.utils.data import default_collate

    functions = {name: getattr(by_hand, name) for name in by_hand.__all__}
    return {**modules(), **functions, "default_collate": default_collate}


# -- nineteen everyday lines -----------------------------------------------------------------------


@dataclass
class Out:
    """What a model returns that was written for one project."""

    logits: Any
    loss: Any
    hidden: tuple[Any, ...]


def network(blocks: int = 40, width: int = 16) -> Any:
    """A model of linear layers and batch norms: seven tensors a block in its `state_dict`."""
    import torch

    return torch.nn.Sequential(
        *(
            layer
            for _ in range(blocks)
            for layer in (
                torch.nn.Linear(width, width),
                torch.nn.BatchNorm1d(width),
                torch.nn.ReLU(),
            )
        )
    )


def step(model: Any, width: int = 16) -> Any:
    """An optimizer that has made a step, so it has a state."""
    import torch

    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, width)).sum().backward()
    optimizer.step()
    return optimizer


def state_dict_of(model: Any) -> Any:
    """What people hand on: an `OrderedDict` with an attribute, `_metadata`."""
    return model.state_dict()


def _everyday() -> dict[str, Any]:
    import copy

    import numpy as np
    import optree
    import torch

    torch.manual_seed(0)
    rng, lengths = np.random.default_rng(0), random.Random(0)  # noqa: S311
    model = network()
    optimizer = step(model)
    state = state_dict_of(model)
    logits = torch.randn(64, 10, requires_grad=True) * 2
    return {
        **names(),
        "deepcopy": copy.deepcopy,
        "tree_map": optree.tree_map,
        "pictures": [
            {
                "image": torch.randint(0, 255, (3, 32, 32), dtype=torch.uint8),
                "label": number,
                "weight": number / 7,
                "id": f"s{number}",
            }
            for number in range(64)
        ],
        "points": [{"x": torch.randn(16), "y": number} for number in range(64)],
        "pairs": [(rng.random((3, 8, 8), dtype="f4"), number) for number in range(64)],
        "texts": [
            {"input_ids": [lengths.randrange(30_000) for _ in range(lengths.randrange(20, 100))]}
            for _ in range(32)
        ],
        "state": state,
        "moments": optimizer.state_dict(),
        "views": {name: tensor.numpy() for name, tensor in state.items()},
        "observation": {
            "image": rng.random((8, 8), dtype="f4"),
            "vector": rng.random(5),
            "goal": rng.random(3),
            "mask": rng.random(4) > 0.5,
            "step": np.int64(3),
        },
        "batch": {
            "x": torch.randn(32, 8),
            "y": torch.arange(32),
            "m": torch.ones(32, dtype=torch.bool),
        },
        "Out": Out,
        "out": Out(
            torch.randn(4, 10, requires_grad=True),
            torch.tensor(0.5, requires_grad=True),
            tuple(torch.randn(4, 8) for _ in range(12)),
        ),
        "frames": [rng.integers(0, 255, (84, 84), dtype="u1") for _ in range(64)],
        "ragged": [torch.randn(lengths.randrange(1, 400)) for _ in range(200)],
        "losses": list(torch.randn(100)),
        "logits": logits,
        "places": [rng.random(4) for _ in range(1000)],
        "transitions": list(deque((rng.random(4, dtype="f4"), 1, 0.5) for _ in range(256))),
    }


CHAIN = "v.detach().cpu().numpy()"

_EVERYDAY = (
    # A DataLoader over a dataset of pictures: its `collate_fn`.
    Case('ferry.collate(pictures, "torch")', "default_collate(pictures)", LOOKS),
    Case('ferry.collate(points, "torch")', "default_collate(points)", LOOKS),
    Case('ferry.collate(pairs, "torch")', "default_collate(pairs)", Target(ratio=0.8)),
    # A collator of token ids, as in each script that trains a language model.
    Case(
        'ferry.collate(texts, "torch", pad=0, mask=True)',
        "padded_with_mask(texts)",
        Target(ratio=0.15),
    ),
    # A checkpoint that goes to another framework or to a file, or is kept for later.
    Case('ferry.convert_tree(state, "numpy")', f"{{k: {CHAIN} for k, v in state.items()}}", SAME),
    Case(
        'ferry.convert_tree(moments, "numpy")',
        f"tree_map(lambda v: {CHAIN} if isinstance(v, torch.Tensor) else v, moments)",
        Target(ratio=1.1),
    ),
    Case("ferry.snapshot(state)", "{k: v.clone() for k, v in state.items()}", LOOKS),
    Case("ferry.snapshot(moments)", "deepcopy(moments)", Target(ratio=0.5)),
    # Weights in NumPy that lie over PyTorch's memory: 4.0 without the extension.
    Case("ferry.snapshot(views)", "{k: v.copy() for k, v in views.items()}", FEWEST),
    Case(
        'ferry.convert_tree(views, "torch", copy=True)',
        "{k: torch.tensor(v) for k, v in views.items()}",
        SAME,
    ),
    # A policy that is asked at each step of an environment.
    Case(
        'ferry.convert_tree(observation, "torch", dtype="float32")',
        "floats_to_float32(observation)",
        Target(ratio=1.6),
    ),
    # The end of an evaluation step.
    Case('ferry.convert_tree(batch, "numpy")', "{k: v.numpy() for k, v in batch.items()}", FEWEST),
    Case(
        'ferry.convert_tree(out, "numpy")',
        "Out(out.logits.detach().numpy(), out.loss.detach().numpy(), "
        "tuple(h.detach().numpy() for h in out.hidden))",
        FEW,
    ),
    # The last frames of a game.
    Case("ferry.to_torch(frames)", "torch.from_numpy(np.stack(frames))", LOOKS),
    Case("[ferry.to_numpy(v) for v in ragged]", f"[{CHAIN} for v in ragged]", SAME),
    # What is logged at the end of an epoch.
    Case("ferry.to_list(losses)", "[t.item() for t in losses]", Target(ratio=1.3)),
    Case(
        "ferry.to_list(logits.argmax(1))",
        "logits.argmax(1).detach().cpu().numpy().tolist()",
        SAME,
    ),
    Case("ferry.to_torch(places)", "torch.from_numpy(np.array(places))", Target(ratio=1.3)),
    # A replay buffer that gives a list of tuples.
    Case(
        'ferry.collate(transitions, "torch")',
        "tuple(torch.from_numpy(np.array(c)) for c in zip(*transitions))",
        FEW,
    ),
)


# -- training in PyTorch ---------------------------------------------------------------------------


def _training() -> dict[str, Any]:
    import numpy as np
    import torch

    rng = np.random.default_rng(9)
    torch.manual_seed(9)
    model = network(10)
    step(model)
    state = state_dict_of(model)
    return {
        **names(),
        "OrderedDict": OrderedDict,
        "state": state,
        "adopted": {name: torch.from_numpy(x.numpy().copy()) for name, x in state.items()},
        "received": [tensor.numpy().copy() for tensor in state.values()],
        "grads": {name: each.grad for name, each in model.named_parameters()},
        "parameters": dict(model.named_parameters()),
        "outputs": [
            {"loss": torch.tensor(0.5), "preds": torch.randn(32), "target": torch.arange(32)}
            for _ in range(50)
        ],
        "sample": {
            "x": rng.random((8, 8), dtype="f4"),
            "y": rng.integers(0, 9, 8),
            "weight": rng.random(8),
        },
        "confusion": {"epoch": 3, "name": "run", "matrix": torch.ones(10, 10), "lr": [0.1, 0.2]},
    }


_TRAINING = (
    # A client of federated learning sends its weights …
    Case(
        'ferry.convert_tree(list(state.values()), "numpy")',
        "[v.cpu().numpy() for _, v in state.items()]",
        LOOKS,
    ),
    # … and takes those of the server.
    Case(
        'OrderedDict(zip(state, ferry.convert_tree(received, "torch", copy=True)))',
        "OrderedDict({k: torch.tensor(v) for k, v in zip(state.keys(), received)})",
        SAME,
    ),
    # An average of weights begins with a copy of them: the best epoch, an EMA.
    Case("ferry.snapshot(state)", "{k: v.detach().clone() for k, v in state.items()}", FEW),
    Case(
        "ferry.snapshot(parameters)",
        "{k: p.detach().clone() for k, p in parameters.items()}",
        FEW,
    ),
    # The same of weights that lie over NumPy's memory, as a loader of files gives them.
    Case("ferry.snapshot(adopted)", "{k: v.clone() for k, v in adopted.items()}", FEW),
    # Gradients, before they are clipped or compared.
    Case("ferry.snapshot(grads)", "{k: g.clone() for k, g in grads.items()}", FEW),
    # The end of an epoch: the outputs of all steps become arrays.
    Case(
        'ferry.collate(outputs, "numpy")',
        "{k: torch.stack([o[k] for o in outputs]).numpy() for k in outputs[0]}",
        Target(ratio=1.6),
    ),
    # A Dataset's `__getitem__`: a sample of arrays becomes tensors.
    Case(
        'ferry.convert_tree(sample, "torch")',
        "{k: torch.from_numpy(v) for k, v in sample.items()}",
        FEWEST,
    ),
    # What a logger or a queue takes: one tensor among settings.
    Case(
        'ferry.convert_tree(confusion, "numpy")',
        "{k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in confusion.items()}",
        FEWEST,
    ),
)

# -- reinforcement learning ------------------------------------------------------------------------

Transition = namedtuple("Transition", ("state", "action", "reward", "next_state", "done"))  # noqa: PYI024
"""Written so in nearly every tutorial of deep Q-learning."""


class RolloutSamples(NamedTuple):
    """A minibatch of a rollout, as libraries of agents have it."""

    observations: Any
    actions: Any
    old_values: Any
    old_log_prob: Any
    advantages: Any
    returns: Any


def _agents() -> dict[str, Any]:
    import numpy as np
    import torch

    rng = np.random.default_rng(1)
    torch.manual_seed(1)

    def frame(size: int = 8) -> Any:
        return rng.random(size, dtype="f4")

    def room() -> dict[str, Any]:
        return {
            "agent": {"position": frame(2), "velocity": frame(2)},
            "target": {"position": frame(2), "reached": rng.random(1) > 0.5},
            "image": rng.integers(0, 255, (16, 16, 3), dtype="u1"),
        }

    policy, target, other = (network(3, 32) for _ in range(3))
    return {
        **names(),
        "Transition": Transition,
        "memory": [
            Transition(frame(), number % 4, number / 8, frame(), number % 5 == 0)
            for number in range(128)
        ],
        "tensors": [
            Transition(
                torch.randn(1, 4),
                torch.tensor([[number % 2]]),
                torch.tensor([1.0]),
                torch.randn(1, 4),
                torch.tensor([False]),
            )
            for number in range(128)
        ],
        "room": room(),
        "rooms": [room() for _ in range(16)],
        "steps": [
            {
                "observation": torch.randn(8),
                "action": torch.tensor(number % 4),
                "log_prob": torch.tensor(-0.5),
                "value": torch.tensor([0.25]),
            }
            for number in range(128)
        ],
        "RolloutSamples": RolloutSamples,
        "rollout": RolloutSamples(
            rng.random((64, 8), dtype="f4"),
            rng.integers(0, 4, (64, 1)),
            *(rng.random(64, dtype="f4") for _ in range(4)),
        ),
        "acted": (
            torch.tensor([1, 0, 3, 2]),
            torch.randn(4, requires_grad=True),
            torch.randn(4, 1, requires_grad=True),
        ),
        "log_probs": [torch.randn((), requires_grad=True) * 2 for _ in range(200)],
        "weights": state_dict_of(policy),
        "target": state_dict_of(target),
        "other": state_dict_of(other),
        "rewards": [[number / 4 + place for place in range(8)] for number in range(128)],
    }


_AGENTS = (
    # DQN: a sample of a replay memory, a named tuple of an array, an int, a float and a bool.
    Case(
        'ferry.collate(memory, "torch")',
        "Transition(*(torch.as_tensor(np.array(c)) for c in zip(*memory)))",
        FEW,
    ),
    # DQN, where the memory has tensors of one row each.
    Case(
        'ferry.collate(tensors, "torch")',
        "Transition(*(torch.stack(c) for c in zip(*tensors)))",
        Target(ratio=1.6),
    ),
    # A policy over nested observations of gymnasium.
    Case('ferry.convert_tree(room, "torch")', "nested_to_torch(room)", FEW),
    # A vector of environments: the observations of all become one batch.
    Case('ferry.collate(rooms, "torch")', "nested_stack(rooms)", LOOKS),
    # PPO: what was seen in each step becomes one batch.
    Case(
        'ferry.collate(steps, "torch")',
        "{k: torch.stack([s[k] for s in steps]) for k in steps[0]}",
        FEW,
    ),
    # PPO: a minibatch out of a buffer of arrays.
    Case(
        'ferry.convert_tree(rollout, "torch")',
        "RolloutSamples(*map(torch.as_tensor, rollout))",
        FEWEST,
    ),
    # Actions, log-probabilities and values of a policy go to the environment and into the buffer.
    Case('ferry.convert_tree(acted, "numpy")', f"tuple({CHAIN} for v in acted)", FEWEST),
    # REINFORCE: the log-probabilities of an episode; a gradient flows through them.
    Case('ferry.collate(log_probs, "torch")', "torch.stack(log_probs)", LOOKS),
    # DQN: the target network takes the policy's weights.
    Case('ferry.convert_tree(weights, "torch", out=target)', "copied_into(other, weights)", INTO),
    # A2C: the rewards of eight environments in each step, as lists of floats.
    Case("ferry.to_torch(rewards)", "torch.tensor(rewards)", LISTS),
)


SECTIONS = (
    loops("everyday lines", _everyday, _EVERYDAY, "optree"),
    loops("training in PyTorch", _training, _TRAINING),
    loops("agents", _agents, _AGENTS),
)
