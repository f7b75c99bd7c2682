"""The format of a trained policy in a file; `sonde.control.deploy` documents it."""

FORMAT = "sonde-policy-1"
