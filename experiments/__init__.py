"""The paper's figures, made anew.

`paper` says what they show, `grid` what must be run for them; `local` and `cluster` run it.

What the runs measured becomes a table (`results`), statistics over seeds (`statistics`), answers to the paper's claims
(`claims`), and pictures (`draw`).
"""
