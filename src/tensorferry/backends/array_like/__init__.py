"""Objects of other libraries, by the protocols that they offer, or by a module for their library."""
