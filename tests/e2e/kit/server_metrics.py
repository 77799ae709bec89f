"""The figures that a server exports."""


def metric(server, name: str) -> float:
    """The sum of all values whose line starts with `name`."""
    text = server.request("GET", "/metrics").body.decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))
