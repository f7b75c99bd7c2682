"""The paper's figures and claims, run as sweeps from a clone of the repository: `python -m experiments FIGURE`.

`paper` says what the figures show, `grid` which batches they need, `references` what returns are measured by. Results become
statistics over seeds (`scores`, `comparisons`), answers to the paper's claims (`claims`, `evidence`) and pictures (`draw`);
`provenance` records where the numbers come from, and `command` puts all of it together.
"""
