"""What formats are made of: contents, stored tensors, trees, the pump that moves bytes, the base of all formats."""
