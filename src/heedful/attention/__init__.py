"""What the heads of a model attend to, what they do, and whether it matters; import what you need from its module."""
