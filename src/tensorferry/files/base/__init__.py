"""The base of formats: contents, stored tensors, trees, the pump that copies bytes, the class `Format`."""
