"""Objects of other libraries, by the protocols that they have, or by a module for their library."""
