"""The values of a conversion: dtypes, devices, what a tensor is, what is asked, what a backend declares."""
