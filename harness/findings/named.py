"""What somebody may have meant who named a finding, and there is none of that name."""

from __future__ import annotations

from harness.store import RunStore


def not_a_point(text: str, store: RunStore, why: str) -> tuple[str, str]:
    """What to say of words that name neither a finding nor a crash point, and what may be meant."""
    if text.startswith(("/", ".")):
        return f"{text} is a path: a finding or a crash point is wanted", f"name a run with --from {text}"
    known = [f.id for f in store.findings()]
    if meant := [n for n in known if n.startswith(text)]:
        return f"{text!r} is only the beginning of a finding's id", f"is {' or '.join(meant[:3])} meant?"
    has = f"its findings: {', '.join(known[:6])}" if known else "it has no finding"
    return f"{why}, nor the 12 digits of a finding of the run {store.path.name}", has
