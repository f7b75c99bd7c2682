"""The paper's claims, on results for which the answer is known."""

import io
import json
import math
import zlib

import numpy as np
import pytest
from rich.console import Console

from experiments.claims import CLAIMS, judge_claims, markdown, print_claims
from experiments.evidence import above, below, overall, within
from experiments.paper import ACTIVE, FIGURES
from sonde._internal.errors import SondeError
from sonde.runs.sweep import Results

SEEDS, ROUNDS = 8, 6
COMMON = "max_epistemic_common"
DOWNSTREAM = FIGURES["downstream"].panels
UNSEEN, TRAINED = ([p for p in DOWNSTREAM if p.unseen is unseen] for unseen in (True, False))


def noise(name: str) -> np.ndarray:
    """One number per seed [S, 1], with a mean of exactly 0, so that it is known what a comparison should find."""
    drawn = np.random.default_rng(zlib.crc32(name.encode())).normal(size=(SEEDS, 1))
    return drawn - drawn.mean()


def made(setting: str, method: str, metric: str, values) -> list[dict]:
    """Rows of values [S, T], from round 1 on."""
    return [
        {"setting": setting, "method": method, "seed": seed, "round": t + 1, metric: float(value)}
        for seed, curve in enumerate(np.asarray(values))
        for t, value in enumerate(curve)
    ]


def together(*parts: list[dict]) -> Results:
    """All of them; metrics of the same round in one row, as runs write them."""
    rows: dict[tuple, dict] = {}
    for row in (row for part in parts for row in part):
        rows.setdefault(tuple(row[name] for name in ("setting", "method", "seed", "round")), {}).update(row)
    return Results(rows.values())


def uncertainty(setting: str, method: str, factor: float, spread: float = 0.01, metric: str = "max_epistemic") -> list[dict]:
    """About `factor / round`, the seeds `spread` apart in its log."""
    return made(setting, method, metric, factor * np.exp(spread * noise(method + metric)) / np.arange(1, ROUNDS + 1))


def returns(panels, method: str, height: float, spread: float = 0.1) -> list[dict]:
    """Best returns about `height`, reached in the second round, and worse ones after it."""
    best = height + spread * noise(method)
    return [row for p in panels for row in made(p.setting, method, p.metric, best - np.array([2.0, 0.0, 1.0]))]


def references(panels, oracle: float | None = 10.0, random: float = 0.0) -> list[dict]:
    """A span of 10."""
    heights = {"random-actions": random} | ({} if oracle is None else {"oracle": oracle})
    rows = [row for p in panels for name, height in heights.items() for row in made(p.setting, name, p.metric, [[height]])]
    return [{**row, "round": 0} for row in rows]


def verdict(name: str, *parts: list[dict]) -> str:
    return judge_claims(together(*parts), [name])[0].verdict


@pytest.mark.parametrize(
    ("rule", "interval", "expected"),
    [
        (below(1.0, 2.0), (-5.0, 0.9), "holds"),
        (below(1.0, 2.0), (0.5, 3.0), "undecided"),
        (below(1.0, 2.0), (2.1, 3.0), "does not hold"),
        (below(1.0, 2.0), (math.nan, math.nan), "undecided"),
        (below(0.05, 0.0), (0.01, 0.03), "holds"),  # above 0, and yet within the margin
        (above(1.0, 1.0), (1.1, 2.0), "holds"),
        (above(1.0, 1.0), (0.0, 2.0), "undecided"),
        (above(1.0, 1.0), (0.0, 0.9), "does not hold"),
        (within(1.0), (-0.9, 0.9), "holds"),
        (within(1.0), (-1.1, 0.0), "undecided"),
        (within(1.0), (0.0, 1.1), "undecided"),
        (within(1.0), (1.1, 2.0), "does not hold"),
        (within(1.0), (-3.0, -1.1), "does not hold"),
        (within(1.0), (math.nan, math.nan), "undecided"),
    ],
)
def test_rule_turns_an_interval_into_a_verdict(rule, interval, expected):
    assert rule.verdict(interval, interval) == expected


def test_one_of_many_parts_needs_more_evidence_to_fail_and_the_same_to_hold():
    rule = above(0.0, 0.0).of(10)
    assert rule.confidence == pytest.approx(0.995)
    assert (
        rule.verdict((-2.0, -0.1), (-3.0, 0.5)) == "undecided" and rule.verdict((-2.0, -0.9), (-3.0, -0.1)) == "does not hold"
    )
    assert rule.verdict((0.1, 2.0), (-0.5, 3.0)) == "holds"


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "undecided"], "undecided"),
        (["holds", "undecided", "does not hold"], "does not hold"),
        ([], "undecided"),
    ],
)
def test_verdict_of_a_claim_follows_from_its_parts(verdicts, expected):
    assert overall(verdicts) == expected


@pytest.mark.parametrize(("name", "setting"), [("C1", "pendulum-gp"), ("C2", "pendulum-pe")])
@pytest.mark.parametrize(
    ("factor", "spread", "expected"), [(0.5, 0.01, "holds"), (2, 0.01, "does not hold"), (1, 1, "undecided")]
)
def test_uncertainty_falls_faster_than_with_random(name, setting, factor, spread, expected):
    active = [uncertainty(setting, method, 1, 0.01) for method in ACTIVE[1:]]
    random, opax = uncertainty(setting, "random", 2), uncertainty(setting, "opax", 2 * factor, spread)
    if name == "C2" and expected == "holds":
        opax = uncertainty(setting, "opax", 0.9)
    assert verdict(name, random, opax, *active) == expected


@pytest.mark.parametrize(("factor", "expected"), [(1.02, "holds"), (0.5, "holds"), (1.2, "does not hold")])
def test_opax_is_at_or_below_the_others(factor, expected):
    others = [uncertainty("pendulum-pe", method, 1) for method in ACTIVE[1:]]
    random, opax = uncertainty("pendulum-pe", "random", 9), uncertainty("pendulum-pe", "opax", factor)
    claim = judge_claims(together(random, opax, *others), ["C2"])[0]
    assert claim.verdict == expected
    found = next(part for part in claim.evidence if part.what == "opax over mean-ae")
    assert found.estimate == pytest.approx(math.log(factor)) and found.interval[0] < found.estimate < found.interval[1]


def test_other_measures_of_uncertainty_do_not_vote():
    parts = [uncertainty("pendulum-gp", method, 1) for method in ACTIVE] + [uncertainty("pendulum-gp", "random", 3)]
    against = [uncertainty("pendulum-gp", name, 1, metric="max_epistemic_common") for name in ACTIVE]
    random = uncertainty("pendulum-gp", "random", 0.1, metric="max_epistemic_common")
    claim = judge_claims(together(*parts, *against, random), ["C1"])[0]
    silent = [part for part in claim.evidence if not part.votes]
    assert claim.verdict == "holds" and len(silent) == 3
    assert {part.verdict for part in silent} == {"does not hold"} and all("common" in part.what for part in silent)


def test_uncertainty_is_compared_in_rounds_and_seeds_that_both_have():
    long = uncertainty("pendulum-gp", "opax", 1, spread=0)
    short = [row for row in uncertainty("pendulum-gp", "random", 2, spread=0) if row["round"] < 3 and row["seed"] != 1]
    part = judge_claims(together(long, short), ["C1"])[0].evidence[0]
    assert (part.seeds, part.rounds, part.verdict) == (SEEDS - 1, 2, "holds")
    assert part.estimate == pytest.approx(math.log(0.5)) and part.numbers == "x0.5 [0.5, 0.5]"


@pytest.mark.parametrize(
    ("exponent", "spread", "expected"),
    [(-2, 0.1, "holds"), (-0.5, 0.1, "holds"), (0.5, 0.1, "does not hold"), (0, 1.0, "undecided")],
)
def test_uncertainty_goes_towards_zero(exponent, spread, expected):
    rates = exponent + spread * noise("rates")
    claim = judge_claims(together(made("pendulum-gp", "opax", "max_epistemic", np.arange(1, ROUNDS + 1) ** rates)), ["C3"])[0]
    slope, later, fall = claim.evidence
    assert claim.verdict == expected and not fall.votes
    assert [slope.estimate, later.estimate] == pytest.approx([exponent] * 2)
    assert fall.estimate == pytest.approx(exponent * math.log(ROUNDS))


@pytest.mark.parametrize(
    ("levels", "expected"),
    [([1, 0.02, 0.023, 0.026, 0.03, 0.035], "does not hold"), ([1, 0.02, 0.02, 0.02, 0.02, 0.02], "undecided")],
)
def test_fall_that_ends_early_does_not_go_to_zero(levels, expected):
    values = levels * np.exp(0.01 * np.random.default_rng(0).normal(size=(SEEDS, ROUNDS)))
    assert verdict("C3", made("pendulum-gp", "opax", "max_epistemic", values)) == expected


@pytest.mark.parametrize(("random", "spread", "expected"), [(1, 0.1, "holds"), (5, 0.1, "does not hold"), (3, 5, "undecided")])
def test_active_methods_beat_random(random, spread, expected):
    active = [returns(DOWNSTREAM, method, 3) for method in ACTIVE]
    results = together(*active, returns(DOWNSTREAM, "random", random, spread), references(DOWNSTREAM))
    claim = judge_claims(results, ["C4"])[0]
    assert claim.verdict == expected and len(claim.evidence) == 27


def test_one_task_that_fails_is_named():
    active = [returns(DOWNSTREAM, method, 3) for method in ACTIVE]
    random = returns(DOWNSTREAM[:8], "random", 1), returns(DOWNSTREAM[8:], "random", 4)
    claim = judge_claims(together(*active, *random, references(DOWNSTREAM)), ["C4"])[0]
    assert claim.verdict == "does not hold" and "24 hold, 3 do not" in claim.summary
    assert "cheetah does not hold" in claim.summary and "swimmer holds" in claim.summary
    held = claim.summary.split("all hold on: ")[1]
    assert all(panel.title in held for panel in DOWNSTREAM[:8]) and DOWNSTREAM[8].title not in held


@pytest.mark.parametrize(
    ("opax", "random", "expected"),
    [(8, 0, "holds"), (0, 0, "does not hold"), (8, 8, "does not hold"), (5, 0, "undecided"), (8, 4, "undecided")],
)
def test_mountain_car_is_solved_by_opax_and_not_by_random(opax, random, expected):
    car = next(panel for panel in DOWNSTREAM if panel.setting == "mountain-car")
    solved = lambda count: np.where(np.arange(SEEDS)[:, None] < count, [-1.0, 60.0, -1.0], -1.0)
    parts = [made(car.setting, name, car.metric, solved(count)) for name, count in (("opax", opax), ("random", random))]
    claim = judge_claims(together(*parts, references([car], oracle=80.0)), ["C5"])[0]
    assert claim.verdict == expected and [part.estimate * SEEDS for part in claim.evidence] == [opax, random]


@pytest.mark.parametrize(
    ("opax", "spread", "expected"),
    [(9, 0.1, "holds"), (7.4, 0.1, "holds"), (6, 0.1, "does not hold"), (7, 1, "undecided")],
)
@pytest.mark.parametrize("oracle", [10.0, None])
def test_opax_is_on_par_where_h_ucrl_was_trained(opax, spread, expected, oracle):
    """A tenth of the span is 1, or 0.8 to 0.9 if the best method ends it."""
    parts = [returns(TRAINED, "opax", opax, spread), returns(TRAINED, "h-ucrl", 8), references(TRAINED, oracle)]
    claim = judge_claims(together(*parts), ["C6"])[0]
    assert claim.verdict == expected and len(claim.evidence) == 6
    assert all(("oracle" if oracle else "best method") in part.note for part in claim.evidence)


def test_differences_of_scores_are_parts_of_the_span():
    parts = [returns(TRAINED, "opax", 6, 0), returns(TRAINED, "h-ucrl", 8, 0), references(TRAINED, 15.0, 5.0)]
    assert judge_claims(together(*parts), ["C6"])[0].evidence[0].estimate == pytest.approx(-0.2)


@pytest.mark.parametrize(
    ("h_ucrl", "spread", "expected"), [(2, 0.1, "holds"), (4.5, 0.1, "does not hold"), (2.5, 1, "undecided")]
)
def test_active_methods_are_ahead_on_unseen_tasks(h_ucrl, spread, expected):
    active = [returns(UNSEEN, method, 5) for method in ACTIVE]
    claim = judge_claims(together(*active, returns(UNSEEN, "h-ucrl", h_ucrl, spread), references(UNSEEN)), ["C7"])[0]
    assert claim.verdict == expected and len(claim.evidence) == 9


@pytest.mark.parametrize(
    ("factor", "height", "spread", "expected"),
    [(1.1, 5.5, 0.1, "holds"), (1.4, 5, 0.1, "does not hold"), (1, 7, 0.1, "does not hold"), (1, 5, 3, "undecided")],
)
def test_rewards_are_alike(factor, height, spread, expected):
    panels = FIGURES["rewards"].panels
    tasks, settings = [p for p in panels if p.is_return], [p.setting for p in panels if not p.is_return]
    parts = [uncertainty(setting, "opax-sum", factor) for setting in settings] + [uncertainty(s, "opax", 1) for s in settings]
    parts += [returns(tasks, "opax", 5), returns(tasks, "opax-sum", height, spread), references(tasks)]
    assert verdict("C8", *parts) == expected


def everything() -> Results:
    tasks = list(dict.fromkeys((*DOWNSTREAM, *(p for p in FIGURES["rewards"].panels if p.is_return))))
    heights = {"opax": 8, "mean-ae": 7, "pets-ae": 7, "random": 1, "h-ucrl": 3, "opax-sum": 8}
    factors = {"opax": 1, "mean-ae": 1.1, "pets-ae": 1.2, "random": 3, "opax-sum": 1.05}
    settings = {p.setting for name in ("uncertainty", "rewards") for p in FIGURES[name].panels if not p.is_return}
    return together(
        *(returns(tasks, name, height) for name, height in heights.items()),
        *(uncertainty(setting, name, factor) for setting in settings for name, factor in factors.items()),
        references(tasks),
    )


MANIPULATION = FIGURES["manipulation"]


def successes(levels: dict[str, float]) -> list[dict]:
    """Success rates that reach a level in the last round, after better ones that do not count."""
    panels = [panel for panel in MANIPULATION.panels if panel.kind == "success"]
    curve = lambda method: levels[method] + 0.01 * noise(method) + np.array([0.3, 0.0])
    return [row for p in panels for method in levels for row in made(p.setting, method, p.metric, curve(method))]


@pytest.mark.parametrize(
    ("opax", "expected"),
    [(0.50, "holds"), (0.47, "holds"), (0.35, "does not hold"), (0.45, "undecided")],
)
def test_manipulation_is_on_par(opax, expected):
    others = dict.fromkeys(("cee-us", "pets-ae", "mean-ae"), 0.5)
    assert verdict("C9", successes({"opax-heuristic": opax, **others, "random": 0.1})) == expected


def test_manipulation_above_random_takes_every_method():
    levels = dict.fromkeys(MANIPULATION.methods, 0.5)
    assert verdict("C9", successes(levels | {"random": 0.6})) == "does not hold"
    del levels["cee-us"]
    (claim,) = judge_claims(together(successes(levels | {"random": 0.1})), ["C9"])
    assert claim.verdict == "undecided" and len(claim.evidence) == 12
    assert {part.note for part in claim.evidence if "cee-us" in part.what} == {
        f"success/{task} of cee-us is missing in fetch-construction" for task in ("pick-place", "throw", "flip")
    }


def test_success_rates_come_with_the_round_of_their_evaluation():
    """A run that was stopped between two evaluations counts as it was at the last one."""
    levels = {"opax-heuristic": 0.25, "random": 0.0}
    row = lambda method, round_number: {"setting": "fetch-construction", "method": method, "seed": 0, "round": round_number}
    play = [row(method, t) | {"interaction/moving": 0.1} for method in levels for t in range(1, 38)]
    tried = lambda method, t, level: row(method, t) | dict.fromkeys(("success/pick-place", "success/throw"), level)
    results = Results([*play, *(tried(method, 25, level) for method, level in levels.items())])
    (claim,) = judge_claims(results, ["C9"])
    assert "(1) Pick & place, round 25: opax-heuristic 0.25, random 0.00; (2) Throw, round 25:" in claim.summary
    assert {part.rounds for part in claim.evidence if part.seeds} == {25} and "(3) Flip" not in claim.summary
    later = Results([*results.rows, tried("opax-heuristic", 50, 0.5)])
    (claim,) = judge_claims(later, ["C9"])
    assert "Pick & place, round 25: random 0.00; (1) Pick & place, round 50: opax-heuristic 0.50" in claim.summary
    # compared in the round that both have
    assert {(part.rounds, part.estimate) for part in claim.evidence if part.seeds} == {(25, 0.25)}


def test_without_results_all_claims_are_undecided():
    claims = judge_claims(Results([]), list(CLAIMS))
    assert [claim.id for claim in claims] == [f"C{i}" for i in range(1, 10)]
    assert {claim.verdict for claim in claims} == {"undecided"}
    assert all(part.note and part.seeds == 0 for claim in claims for part in claim.evidence)
    first = next(claim for claim in claims if claim.id == "C1").evidence[0]
    assert first.note == "max_epistemic of opax and random is missing in pendulum-gp"


def test_few_seeds_decide_nothing():
    few = Results(row for row in everything().rows if row["seed"] < 4)
    enough = Results(row for row in everything().rows if row["seed"] < 5)
    assert judge_claims(few, ["C1"])[0].verdict == "undecided" and judge_claims(enough, ["C1"])[0].verdict == "holds"
    assert "fewer than 5 seeds" in judge_claims(few, ["C1"])[0].evidence[0].note


def test_without_references_scores_are_undecided_and_say_so():
    results = Results(row for row in everything().rows if row["method"] not in ("oracle", "random-actions"))
    for claim in judge_claims(results, ["C6", "C7"]):
        assert claim.verdict == "undecided" and all("has no span" in part.note for part in claim.evidence)
        assert all(part.unit == "return" and part.seeds == SEEDS and "spans" not in part.numbers for part in claim.evidence)


def test_methods_without_common_rounds_or_seeds_are_not_compared():
    car = next(panel for panel in DOWNSTREAM if panel.setting == "mountain-car")
    opax, random = returns([car], "opax", 3), returns([car], "random", 1)
    later = together(opax, [{**row, "round": row["round"] + 10} for row in random])
    others = together(opax, [{**row, "seed": row["seed"] + 10} for row in random])
    find = lambda results: next(p for p in judge_claims(results, ["C4"])[0].evidence if p.panel == car.title).note
    assert "no round" in find(later) and "no seed in common" in find(others)
    assert judge_claims(later, ["C5"])[0].verdict == "undecided"


def test_diverged_seed_survives_saving_and_loading(tmp_path):
    rows = [dict(row) for row in everything().rows]
    for row in rows:
        if (row["setting"], row["method"], row["seed"]) == ("pendulum-gp", "opax", 5):
            row["max_epistemic"] = math.nan
    Results(rows).save(tmp_path / "curves.csv")
    claim = judge_claims(Results.load(tmp_path / "curves.csv"), ["C1"])[0]
    assert claim.verdict == "undecided" and "not finite" in claim.evidence[0].note


@pytest.mark.parametrize("strange", [math.nan, math.inf, 0.0])
def test_values_that_are_not_finite_decide_nothing(strange):
    rows = [dict(row) for row in everything().rows]
    for row in rows:
        if row["seed"] == 1:
            row.update({name: strange for name in row if name == "max_epistemic" or name.startswith("return/")})
    claims = judge_claims(Results(rows), list(CLAIMS))
    if strange:
        assert {claim.verdict for claim in claims if claim.id != "C5"} == {"undecided"}
    json.dumps([claim.to_json() for claim in claims], allow_nan=False)


def test_unknown_claim_is_rejected():
    with pytest.raises(SondeError, match="unknown claim 'C10'; did you mean 'C1'\\? expected one of: C1, C2"):
        judge_claims(Results([]), ["C10"])


def test_json_keeps_all_and_has_no_nan():
    for results in (everything(), Results([])):
        for claim in judge_claims(results, list(CLAIMS)):
            back = json.loads(json.dumps(claim.to_json(), allow_nan=False))
            assert (back["verdict"], back["rule"], len(back["evidence"])) == (claim.verdict, claim.rule, len(claim.evidence))
            assert back["evidence"][0]["panel"] == claim.evidence[0].panel


def test_rules_are_documentation_and_say_their_margins():
    for claim in judge_claims(Results([]), list(CLAIMS)):
        assert claim.rule in (CLAIMS[claim.id].__doc__ or "") and claim.rule.count(". ") == 0 and claim.rule.endswith(".")
    rule = {claim.id: claim.rule for claim in judge_claims(Results([]), list(CLAIMS))}
    assert "1.05" in rule["C2"] and "-10%" in rule["C6"] and "1.25" in rule["C8"]


def test_markdown_has_a_row_and_a_rule_per_claim():
    claims = judge_claims(everything(), list(CLAIMS))
    lines = markdown(claims).splitlines()
    assert sum(line.startswith("| C") for line in lines) == sum(line.startswith("- C") for line in lines) == 9
    assert all(line.replace("\\|", "").count("|") == 5 for line in lines if line.startswith("|"))


def test_print_fits_into_100_columns():
    text = io.StringIO()
    claims = judge_claims(everything(), list(CLAIMS))
    print_claims(claims, Console(file=text, width=100))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 100 and all(any(line.startswith(f"{c.id} ") for line in lines) for c in claims)
    # brackets are shown, not taken for markup
    assert claims[0].evidence[0].numbers in text.getvalue()
    # where panels may differ, each has its line
    several = [c for c in claims if len({part.panel for part in c.evidence}) > 1]
    panels = [f"{title}: " for c in several for title in dict.fromkeys(part.panel for part in c.evidence)]
    assert all(any(line.strip().startswith(title) for line in lines) for title in panels)


def test_other_measures_are_printed_without_a_vote():
    common = [
        row for name, factor in (("opax", 9), ("random", 1)) for row in uncertainty("pendulum-gp", name, factor, metric=COMMON)
    ]
    claim = judge_claims(together(everything().rows, common), ["C1"])[0]
    assert claim.verdict == "holds"
    text = io.StringIO()
    print_claims([claim], Console(file=text, width=300))
    assert "not used for the verdict, max_epistemic_common: - opax over random x9" in text.getvalue()
