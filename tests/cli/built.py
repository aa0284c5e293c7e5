"""The commands as Typer makes them of their functions, made once: it makes all of them for each call of one.

Importing this lets every call of the process use them, in which Typer's own 30 ms are most of many a command's time.
"""

from __future__ import annotations

from functools import cache

import typer.main

from tensorferry.cli.app import app

typer.main.get_command = cache(typer.main.get_command)
command = typer.main.get_command(app)
