"""How well models learn small plants with known equations: `python -m benchmarks.systems`.

`plant` has the base class of plants and makes measurements, `plants` the systems that models are judged on, `development` other
systems on which settings may be chosen. `learning` fits Sonde's models, `peers` the others; `scoring` tests them, `cells` goes
through all combinations, and `report` presents the results.
"""
