"""Reports: one self-contained HTML file about a run, or about several runs side by side.

`_subjects` opens runs and pools those that differ only in their seeds. `_learned`, `_states` and `_tasks` compute what metrics
do not say, and `_content` collects all of it. `_overview`, `_curves`, `_model` and `_results` write the sections that `_page`
lists, with `_charts` and `_html`. `_follow` does it again whenever a round ends.
"""

from sonde.runs.report._follow import follow_report
from sonde.runs.report._write import write_report

__all__ = ["follow_report", "write_report"]
