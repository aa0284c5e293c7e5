"""Values of a conversion: dtypes, devices, tensor descriptions, requests, backend declarations."""
