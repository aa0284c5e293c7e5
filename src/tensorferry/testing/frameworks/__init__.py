"""One file per framework: how its tensors are made and looked at without tensorferry."""
