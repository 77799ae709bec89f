"""The numbers of a run, kept as target/e2e/report.json."""

import json
import os

from .server import OUT


# These machines are shared and noisy: a time that is promised for a quiet one fails a test only beyond this factor. The report says
# of each run whether the promise itself was kept.
NOISE = 1.5
# Where the host gave a larger share of this machine's time to other machines, a time says nothing about the program: it is reported, not judged.
STOLEN = 0.1


class Host:
    """What the host of this virtual machine took from it, by /proc/stat."""

    def __init__(self):
        self.last, self.share = self.read(), 0.0

    @staticmethod
    def read() -> tuple[int, int]:
        """Ticks stolen, and all ticks."""
        with open("/proc/stat") as stat:
            # user nice system idle iowait irq softirq steal; what follows is part of user and nice.
            ticks = [int(value) for value in stat.readline().split()[1:9]]
        return ticks[7], sum(ticks)

    def stolen(self) -> float:
        """Share of all time since the last look; looks within a second or two of each other see the same."""
        (stolen, ticks), (stolen_before, ticks_before) = self.read(), self.last
        if ticks - ticks_before > 200:
            self.last, self.share = (stolen, ticks), (stolen - stolen_before) / (ticks - ticks_before)
        return self.share


class Report:
    def __init__(self):
        self.host = Host()
        self.sections: dict[str, object] = {"machine": {"cores": os.cpu_count(), "load": os.getloadavg()}}

    def add(self, section: str, value):
        self.sections[section] = value
        OUT.mkdir(parents=True, exist_ok=True)
        (OUT / "report.json").write_text(json.dumps(self.sections, indent=1, default=float) + "\n")

    def promise(self, what: str, measured: float, limit: float, noise: float = NOISE):
        """Notes a promised number and whether this run kept it; fails where noise cannot explain the miss. `noise=1`: what neighbours cannot
        change has no room."""
        stolen = self.host.stolen()
        self.add(f"promise: {what}", {"measured": round(measured, 4), "promised": round(limit, 4), "kept": measured <= limit, "stolen": round(stolen, 3)})
        if noise > 1 and stolen > STOLEN:
            return
        assert measured <= limit * noise, f"{what}: {measured:.3f}, promised {limit:.3f}; the host took {stolen:.0%} of the machine's time"


def spread(values: list[float]) -> dict:
    """p50, p95, largest and number, rounded to ms."""
    ordered = sorted(values)
    pick = lambda share: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)  # noqa: E731
    return {"p50": pick(0.5), "p95": pick(0.95), "max": round(ordered[-1], 3), "n": len(ordered)}
