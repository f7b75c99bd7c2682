"""An attempt to break Sonde: kills, damaged folders, bad options, faults while learning, bad files, faulty systems, a long run.

    python -m experiments.campaign [PART ...] [--seed 0] [--scale 1.0] [--jobs 2] [--out campaign]

Each part is a module with `prepare` and `case`: a number of cases, each made from the seed and its number alone, so that
`--case N` repeats one. `harness` runs cases in worker processes and records what happened, `sandbox` has what the parts share.
The same command continues where it was stopped, and prints the table at the end.
"""
