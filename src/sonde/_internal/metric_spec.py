"""Description of a metric: its key, unit and meaning, and how it is drawn and printed."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MetricSpec:
    """One entry of the schema of metrics, which progress display, figures, stopping rules and documentation read.

    A key that ends in `/*` stands for a family, such as `return/*` for the return of each task; `{}` in its title is replaced
    by the rest of the key.
    """

    key: str
    """Key in `metrics.jsonl`."""
    title: str
    """Title of its panel in figures."""
    unit: str
    """Unit, for axes and documentation."""
    meaning: str
    """What the number means, in one sentence."""
    drawn: bool = True
    """Whether figures of curves have a panel for it."""
    log: bool = False
    """Whether it is drawn on a logarithmic axis."""
    column: str = ""
    """Heading in the progress display; empty: it is not shown there."""
    digits: int | None = None
    """Decimals in the progress display; None: as many as suit the size of the number."""
    sentence: str = ""
    """How a stopping rule reports its value, with `{}` for the number."""

    def matches(self, key: str) -> bool:
        """Whether this entry describes a key.

        Args:
            key: Key of a metric.
        """
        return key == self.key or (self.key.endswith("/*") and key.startswith(self.key[:-1]))

    def title_of(self, key: str) -> str:
        """The panel title of one key.

        Args:
            key: A key that `matches`.
        """
        return self.title.format(key.removeprefix(self.key[:-1])) if self.key.endswith("/*") else self.title
