"""Trees: every tensor inside dicts, lists, dataclasses, model outputs, under one contract.

`structure` takes a tree apart and puts it together, `containers` knows what Python has of them, and
each backend what its own framework's users have registered; `leaves` says what is a tensor; `api`
plans and runs all leaves as one.
"""
