"""What a backend is, and a folder for each framework that has one; each can be imported without its framework."""
