"""`sonde bench`: every hot path at the paper's settings, beside what the machine could do at best.

The pieces: `rows` (one measurement), `measuring` (clocks, the machine's limits), `work` (the least work of each algorithm),
`engine` (the compiled programs that are measured); one module per kind of path (`gaussian_process`, `ensembles`,
`soft_actor_critic`, `episodes` with `real_time` and `time_to_task`, `processes`, `peers` with `peer_planning` and
`peer_posterior`); `runner`, which goes through the paths; and `report`, `table`, `figure` for what a person gets to see.
"""
