"""A run on disk: its configuration, metrics, data, checkpoints and figures."""
