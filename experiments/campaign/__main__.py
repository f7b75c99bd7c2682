"""`python -m experiments.campaign`: its options, and the table at the end."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from experiments.campaign.harness import KINDS, Campaign, read_journal
from experiments.campaign.parts import PARTS


@dataclass
class Arguments:
    """Try to break Sonde, and count what was lost, wrong, ended in a traceback, or touched outside of its folder."""

    parts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Parts to run; all of them by default."""
    seed: int = 0
    """Seed of all cases."""
    scale: float = 1.0
    """Share of the full number of cases."""
    jobs: int = 2
    """Worker processes."""
    out: Path = Path("campaign")
    """Folder for what happened in each case; cases that are there are not repeated."""
    case: int | None = None
    """Repeat this one case of a single part, and print what happened."""
    again: bool = False
    """Repeat the cases in which something was found."""
    minutes: float | None = None
    """Stop a part after this time; the same command continues it."""


def main(args: list[str] | None = None) -> int:
    """Run the campaign.

    Args:
        args: Words of the command line; by default those of the process.

    Returns:
        Number of cases with a fault.
    """
    chosen = tyro.cli(Arguments, args=args, prog="python -m experiments.campaign")
    names = chosen.parts or tuple(PARTS)
    if unknown := set(names) - PARTS.keys():
        raise SystemExit(f"campaign: unknown part {', '.join(sorted(unknown))}; expected some of: {', '.join(PARTS)}")
    campaign = Campaign(chosen.out.absolute(), chosen.seed, chosen.jobs, chosen.minutes)
    if chosen.case is not None:
        outcome = campaign.one(names[0], chosen.case)
        print(json.dumps(outcome.to_json(chosen.case), indent=2))
        return len(outcome.faults)
    for name in names:
        campaign.run(name, max(1, round(PARTS[name].cases * chosen.scale)), chosen.again)
    return report(campaign, names)


def report(campaign: Campaign, names: tuple[str, ...]) -> int:
    """Print the table and the first faults.

    Args:
        campaign: The campaign.
        names: Its parts.

    Returns:
        Number of cases with a fault.
    """
    console, failed = Console(width=160), 0
    table = Table("part", "cases", "what was done", *KINDS, title=f"Campaign, seed {campaign.seed}")
    for name in names:
        lines = read_journal(campaign.journal(name)).values()
        failed += sum(bool(line["faults"]) for line in lines)
        totals: dict[str, int] = {}
        for line in lines:
            for what, count in line["counts"].items():
                totals[what] = totals.get(what, 0) + count
        done = ", ".join(f"{count:,} {what}" for what, count in sorted(totals.items(), key=lambda item: -item[1]))
        kinds = [kind for line in lines for kind, _ in line["faults"]]
        table.add_row(name, f"{len(lines):,}", done, *(f"{kinds.count(kind):,}" for kind in KINDS))
        for line in [line for line in lines if line["faults"]][:20]:
            for kind, text in line["faults"]:
                again = f"{name} --seed {campaign.seed} --case {line['case']}"
                console.print(f"{again}: {kind}: {text[-1500:]}", markup=False, highlight=False)
    console.print(table)
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
