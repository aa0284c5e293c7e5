"""From what a tensor is and what is asked to the steps that do it, or the reason why not."""
