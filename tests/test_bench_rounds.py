"""The benchmark path `cheetah-round`: whole rounds, with sizes that mean nothing."""

import pytest

from benchmarks import runner
from benchmarks.measuring import Plan


@pytest.mark.slow
def test_rounds_of_one_and_of_several_methods_are_timed():
    results = runner.Results()
    runner.run(["cheetah-round"], Plan("tiny"), results)
    assert results.failures == {}
    assert [row.setting for row in results.rows] == ["opax", "2 methods, one process", "2 methods, 2 processes"]
    assert all(row.wall_seconds > 0 and row.num_seeds == 2 for row in results.rows)
    assert [row.extra["methods"] for row in results.rows] == [["opax"], ["opax", "mean-ae"], ["opax", "mean-ae"]]
