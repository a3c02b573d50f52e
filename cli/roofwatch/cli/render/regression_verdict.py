"""The verdict of ``regressions`` in sentences: what was found, or what that nothing was found is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roofwatch.cli.render import text
from roofwatch.cli.render.regression_changes import change, limit
from roofwatch.model.regression import Verdict

Answer = Mapping[str, Any]
Row = Mapping[str, Any]

BLIND = 0.1  # of tested device time: where more is unclear nobody can say that nothing is slower
PRACTICAL = 1_000  # windows a side: nobody waits for more
SUSPECTS = 3


def found(answer: Answer) -> str:
    """The verdict in a few sentences."""
    verdict, limits = answer["verdict"], answer["query"]
    counts, tested = verdict["verdicts"], sum(verdict["verdicts"].values())
    beyond = f"by more than {limit(limits['tolerance'])}"
    if verdict["findings"]:
        parts = [
            f"{text.count(counts[v])} {words}"
            for v, words in (("slower", f"slower {beyond}"), ("called_more", "called more often"), ("new", "new"))
            if counts.get(v)
        ]
        said = f"Found, of {text.plural(tested, 'kernel')}: {', '.join(parts)}."
    elif verdict["step_findings"]:
        said = (
            f"Found: the step is slower {beyond}, but none of {text.plural(tested, 'kernel')} is: 'roofwatch timeline' "
            "shows what it waits for."
        )
    else:
        said = _nothing(answer, tested, beyond)
    if clocked := counts.get("clock"):
        said += f" A lower clock explains {text.plural(clocked, 'slower kernel')}."
    return said if verdict["complete"] else f"{said} {too_few(answer)}"


def _nothing(answer: Answer, tested: int, beyond: str) -> str:
    """That nothing was found, and what that is worth: where much is unclear something may well be slower."""
    unclear, share = answer["verdict"]["verdicts"].get(Verdict.UNCLEAR, 0), answer["verdict"]["unclear_share"]
    if not unclear:
        return f"Nothing is slower {beyond}, of {text.plural(tested, 'kernel')}."
    doubtful = f"{text.count(unclear)} {'is' if unclear == 1 else 'are'} unclear, {text.percent(share)} of device time"
    if share is not None and share < BLIND:
        return f"Nothing is found slower {beyond}, of {text.plural(tested, 'kernel')}; {doubtful}."
    said = f"Whether anything is slower {beyond} cannot be said: of {text.plural(tested, 'kernel')} {doubtful}."
    seem = [row for row in answer["rows"] if _suspect(row, answer["query"]["tolerance"])][:SUSPECTS]
    if seem:
        told = (f"{text.cut_middle(text.kernel(row['kernel']), 40)} {' ('.join(change(row))})" for row in seem)
        said += f" Most likely: {', '.join(told)}."
    return said


def _suspect(row: Row, tolerance: float) -> bool:
    """Whether a kernel that is unclear seems to have become slower."""
    return row["verdict"] == Verdict.UNCLEAR and row["ratio"] is not None and row["ratio"] > 1 + tolerance


def too_few(answer: Answer) -> str:
    """How many windows there are and how many would be needed, and what for."""
    worst = max(answer["devices"], key=lambda d: (d["windows_needed"] is None, d["windows_needed"] or 0))
    have = f"{text.count(worst['windows_before'])} before and {text.count(worst['windows_after'])} after"
    if worst["windows_needed"] is None:
        return (
            f"Too few windows to tell, {have}: their noise is not known yet; about 20 a side are enough at 1 % noise."
        )
    if worst["complete"]:
        names = answer["verdict"]["too_few_for"]
        return (
            f"Too few windows, {have}, to tell whether {text.cut_middle(text.kernel(names[0]), 40)}"
            f"{f' and {len(names) - 1} more' if names[1:] else ''} came or is called more by chance: "
            f"{text.count(answer['verdict']['windows_needed'])} a side are needed."
        )
    noise = "" if worst["noise"] is None else f" at this noise ({text.percent(worst['noise'])} from window to window)"
    least = "" if worst["findable"] is None else f"; these find one of {_grown(worst['findable'])}"
    if worst["windows_needed"] > PRACTICAL:
        return (
            f"The windows, {have}, differ too much from each other to find a slowdown of "
            f"{limit(answer['query']['find'])}{noise}; more windows are no way out{least}. Look for what takes turns "
            "with the job (other processes, other inputs, a clock that moves), and keep it away."
        )
    return (
        f"Too few windows, {have}: {text.count(worst['windows_needed'])} a side are needed to find a slowdown of "
        f"{limit(answer['query']['find'])} in 95 of 100 runs{noise}{least}."
    )


def _grown(share: float) -> str:
    """A slowdown as people say it: "12 %", from twice as long on "3.4 ×"."""
    return f"{text.significant(1 + share)} ×" if share >= 1 else text.percent(share)
