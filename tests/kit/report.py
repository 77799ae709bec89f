"""The numbers of a run, kept as target/e2e/report.json."""

import json
import os

from .server import OUT


# These machines are shared and noisy: a time that is promised for a quiet one fails a test only beyond this factor. The report says
# of each run whether the promise itself was kept.
NOISE = 1.5


class Report:
    def __init__(self):
        self.sections: dict[str, object] = {"machine": {"cores": os.cpu_count(), "load": os.getloadavg()}}

    def add(self, section: str, value):
        self.sections[section] = value
        OUT.mkdir(parents=True, exist_ok=True)
        (OUT / "report.json").write_text(json.dumps(self.sections, indent=1, default=float) + "\n")

    def promise(self, what: str, measured: float, limit: float, noise: float = NOISE):
        """Notes a promised number and whether this run kept it; fails where noise cannot explain the miss. `noise=1`: what neighbours cannot
        change has no room."""
        self.add(f"promise: {what}", {"measured": round(measured, 4), "promised": round(limit, 4), "kept": measured <= limit})
        assert measured <= limit * noise, f"{what}: {measured:.3f}, promised {limit:.3f}"


def spread(values: list[float]) -> dict:
    """p50, p95, largest and number, rounded to ms."""
    ordered = sorted(values)
    pick = lambda share: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)  # noqa: E731
    return {"p50": pick(0.5), "p95": pick(0.95), "max": round(ordered[-1], 3), "n": len(ordered)}
