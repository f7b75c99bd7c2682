"""Benchmarks: every hot path at the paper's settings, beside what the machine could do at best.

Run from a clone with `python -m benchmarks` or `make benchmark`. `rows` is one measurement, `measuring` has clocks and the
machine's limits, `work` counts the least work of each algorithm, `engine` has the compiled programs that are measured. There is
one module per kind of path: `gaussian_process`, `ensembles`, `soft_actor_critic`, `rollouts` (with `real_time` and
`time_to_task`), `free_play`, `processes`, `peers` (with `peer_planning`, `peer_mbrl`, `torch_ensemble` and `peer_posterior`).
`runner` measures them; `report`, `table`, `figure` and `peer_figure` present the results. `results/` holds recorded ones.
`systems` is a benchmark of its own: how well models learn small plants (`python -m benchmarks.systems`).
"""
