"""The 27 cases as settings of the page."""

from __future__ import annotations

__all__ = ["CASES", "FIRST"]

CASES = {
    "C01": "from=torch&to=numpy",
    "C02": "from=torch&dtype=int64&shape=8&to=python",
    "C03": "from=torch&requires=1&to=numpy",
    "C04": "from=torch&requires=1&to=python",
    "C05": "from=torch&device=cuda:0&to=numpy",
    "C06": "from=torch&device=cuda:0&requires=1&to=numpy",
    "C07": "from=torch&device=cuda:0&to=python",
    "C08": "from=python&dtype=float64&shape=8,8&to=torch",
    "C09": "from=torch&shape=8,8&to=numpy",
    "C10": "from=torch&shape=4,10&to=numpy",
    "C11": "from=tensorflow&to=numpy",
    "C12": "from=torch&to=numpy&copy=True",
    "C13": "from=numpy&to=torch",
    "C14": "from=numpy&to=torch&copy=True",
    "C15": "from=numpy&layout=reversed&to=torch",
    "C16": "from=numpy&to=tensorflow",
    "C17": "from=numpy&dtype=float64&to=torch&as=default",
    "C18": "from=numpy&dtype=float64&to=torch&as=float32",
    "C19": "from=numpy&layout=transposed&to=torch",
    "C20": "from=numpy&to=torch&place=cuda",
    "C21": "from=numpy&to=torch&place=cuda&non_blocking=1",
    "C22": "from=torch&dtype=bfloat16&device=cuda:0&requires=1&to=numpy",
    "C23": "from=numpy&dtype=bfloat16&to=torch",
    "C24": "from=torch&layout=second&to=numpy",
    "C25": "from=torch&dtype=int8&to=numpy",
    "C26": "from=torch&shape=8,10&requires=1&to=numpy",
    "C27": "from=jax&to=torch",
}
"""The setting of each case, by its id; the titles are the tour's."""

FIRST = "C13"
"""What the page shows before anything is chosen."""
