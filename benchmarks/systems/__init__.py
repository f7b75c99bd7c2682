"""How well models learn small plants: `python -m benchmarks.systems`.

`plant` has the base class of plants and makes data, `plants` the systems that models are judged on, `development` other systems
on which settings may be chosen.
"""
