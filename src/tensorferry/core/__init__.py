"""The values of a conversion: dtypes, devices, descriptions of tensors, requests, declarations of backends."""
