"""Objects of other libraries: by the protocols that they offer, or by what is known of their library."""
