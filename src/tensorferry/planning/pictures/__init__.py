"""Pictures of plans: memory to scale as SVG, and pages of HTML."""
