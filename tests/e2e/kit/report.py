"""The figures of a run, stored as report.json."""

import json
import os
import pathlib
import time

from .server import OUT, worker_file

# The long tier may run on a shared machine. A promised time holds for a quiet machine, so a test
# fails only beyond this factor. The report says for each run whether the promise itself was met.
NOISE_FACTOR = 1.5


class CpuPressure:
    """How much the processes of this machine waited for a CPU, from /proc/pressure/cpu."""

    def __init__(self):
        self.last = self.read()

    @staticmethod
    def read() -> tuple[float, float] | None:
        """Now, and the seconds so far in which a process waited; None where the kernel does not
        count them."""
        try:
            some = pathlib.Path("/proc/pressure/cpu").read_text().splitlines()[0]
        except OSError:
            return None
        return time.monotonic(), int(some.rsplit("total=", 1)[1]) / 1e6

    def share(self) -> float | None:
        """The share of the time since the last call in which a process waited."""
        now, before = self.read(), self.last
        if now is None or before is None or now[0] == before[0]:
            return None
        self.last = now
        return (now[1] - before[1]) / (now[0] - before[0])


class Report:
    """`enforce`: whether a missed promise fails the test or is only recorded."""

    def __init__(self, enforce: bool):
        self.enforce = enforce
        self.pressure = CpuPressure()
        self.sections: dict[str, object] = {
            "machine": {"cores": os.cpu_count(), "load": os.getloadavg()}
        }

    def add(self, section: str, value):
        self.sections[section] = value
        OUT.mkdir(parents=True, exist_ok=True)
        worker_file("report", ".json").write_text(
            json.dumps(self.sections, indent=1, default=float) + "\n"
        )

    def check_target(
        self, what: str, measured: float, limit: float, noise: float = NOISE_FACTOR, server=None
    ):
        """Records a promised figure that depends on the machine, and how busy the machine was.
        Fails in the long tier if noise cannot explain the miss. `server`: the process whose CPU
        wait is recorded, too."""
        share = self.pressure.share()
        machine = "CPU pressure unknown" if share is None else f"CPU pressure {share:.0%}"
        if server is not None:
            machine += f", the server waited {server.cpu_wait_seconds():.2f} s for a processor"
        found = {
            "measured": round(measured, 4),
            "promised": round(limit, 4),
            "kept": measured <= limit,
            "machine": machine,
        }
        self.add(f"promise: {what}", found)
        if self.enforce:
            assert measured <= limit * noise, (
                f"{what}: {measured:.3f}, promised {limit:.3f}; {machine}"
            )

    def check_limit(self, what: str, measured: float, limit: float):
        """Records and checks a figure that other processes do not change: memory, bytes, CPU time,
        counts."""
        self.add(f"limit: {what}", {"measured": round(measured, 4), "limit": round(limit, 4)})
        assert measured <= limit, f"{what}: {measured:.3f}, limit {limit:.3f}"


def merge_reports() -> dict:
    """Merges the figures of all workers into one report.json."""
    sections: dict[str, object] = {}
    for file in sorted(OUT.glob("report*.json")):
        worker = file.stem.removeprefix("report").removeprefix("-")
        for name, value in json.loads(file.read_text()).items():
            known = name in sections and sections[name] != value
            sections[f"{name} ({worker})" if known else name] = value
        if worker:
            file.unlink()
    if sections:
        (OUT / "report.json").write_text(json.dumps(sections, indent=1) + "\n")
    return sections


def percentiles(values: list[float]) -> dict:
    """p50, p95, maximum and count, rounded to ms."""
    ordered = sorted(values)

    def pick(share):
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)

    return {"p50": pick(0.5), "p95": pick(0.95), "max": round(ordered[-1], 3), "n": len(ordered)}
