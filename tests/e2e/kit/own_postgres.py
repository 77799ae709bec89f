"""A PostgreSQL server of one test, whose process, disk and network the test controls. The network
is a namespace with one link for each Visavis server, so that a test can cut one of them off. Needs
root."""

import itertools
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

#: The first link has the addresses 10.213.0.1 and 10.213.0.2.
SUBNET = "10.213"
#: No packet fits into the queue of this discipline, so all are dropped without an answer.
DROP_ALL = "tbf rate 8bit burst 10b limit 10b".split()

counter = itertools.count()


def run(*command: str):
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)


class OwnPostgres:
    """Starts at once. `links`: number of addresses; `disk_mb`: size of its disk, else unlimited."""

    def __init__(self, links: int = 1, disk_mb: int | None = None):
        if os.geteuid() != 0:
            pytest.skip("namespaces and mounts need root")
        found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        assert found, "PostgreSQL is not installed: run scripts/setup.sh tests"
        self.bin = found[-1].parent
        self.name = f"visavis-{os.getpid()}-{next(counter)}"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=self.name))
        self.is_mounted, self.has_namespace = False, False
        self.interfaces: list[str] = []
        try:
            self._create(links, disk_mb)
        except BaseException:
            self.close()
            raise

    def _create(self, links: int, disk_mb: int | None):
        if disk_mb:
            run("mount", "-t", "tmpfs", "-o", f"size={disk_mb}m", "tmpfs", str(self.folder))
            self.is_mounted = True
        shutil.chown(self.folder, "postgres", "postgres")
        run("ip", "netns", "add", self.name)
        self.has_namespace = True
        for number in range(links):
            self._add_link(number)
        setup = "-U postgres -A trust -E UTF8 --locale=C.UTF-8 --wal-segsize=1".split()
        self._as_postgres("initdb", *setup)
        (self.folder / "db/pg_hba.conf").write_text("host all all all trust\n")
        self.start()

    def url(self, link: int = 0) -> str:
        """The URL of the server, without a database, through a link."""
        return f"postgres://postgres@{SUBNET}.{link}.2:5432"

    def start(self):
        options = "-c listen_addresses=* -c fsync=off -c max_connections=100 -c min_wal_size=4MB"
        sockets = f"-c unix_socket_directories={self.folder}"
        self._as_postgres(
            *("pg_ctl", "-s", "-w", "-l", str(self.folder / "log")),
            *("-o", f"{options} {sockets}", "start"),
        )

    def is_running(self) -> bool:
        return self._pg_ctl("status").returncode == 0

    def stop(self, mode: str = "fast"):
        """`mode`: `fast`, or `immediate`, which resembles a crash."""
        self._pg_ctl("-m", mode, "-s", "stop")

    def restart(self, mode: str = "fast"):
        self.stop(mode)
        self.start()

    def cut(self, link: int):
        """Drops all packets of a link, in both directions."""
        run("tc", "qdisc", "add", "dev", self.interfaces[link], "root", *DROP_ALL)
        self._inside("tc", "qdisc", "add", "dev", f"link{link}", "root", *DROP_ALL)

    def heal(self, link: int):
        run("tc", "qdisc", "del", "dev", self.interfaces[link], "root")
        self._inside("tc", "qdisc", "del", "dev", f"link{link}", "root")

    def fill_disk(self):
        """Leaves no space on the disk."""
        with (self.folder / "filler").open("wb") as filler:
            try:
                while True:
                    filler.write(bytes(1 << 16))
                    filler.flush()
            except OSError:
                pass

    def empty_disk(self):
        (self.folder / "filler").unlink()

    def close(self):
        if self.has_namespace:
            self.stop("immediate")
            for interface in self.interfaces:
                run("ip", "link", "del", interface)
            run("ip", "netns", "del", self.name)
        if self.is_mounted:
            run("umount", str(self.folder))
        shutil.rmtree(self.folder)

    def _add_link(self, number: int):
        # A name has at most 15 characters.
        interface = f"vv{os.getpid() % 10_000_000}-{number}"
        run(*f"ip link add {interface} type veth peer name link{number} netns {self.name}".split())
        self.interfaces.append(interface)
        run(*f"ip addr add {SUBNET}.{number}.1/30 dev {interface}".split())
        run(*f"ip link set {interface} up".split())
        self._inside(*f"ip addr add {SUBNET}.{number}.2/30 dev link{number}".split())
        self._inside(*f"ip link set link{number} up".split())

    def _inside(self, *command: str):
        run("ip", "netns", "exec", self.name, *command)

    def _as_postgres(self, program: str, *arguments: str):
        result = self._run_as_postgres(program, *arguments)
        assert result.returncode == 0, result.stderr

    def _pg_ctl(self, *arguments: str):
        return self._run_as_postgres("pg_ctl", *arguments)

    def _run_as_postgres(self, program: str, *arguments: str):
        inside = ["ip", "netns", "exec", self.name]
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        command = [str(self.bin / program), "-D", str(self.folder / "db"), *arguments]
        # pg_ctl leaves the server with its own output, so that must be no pipe that is read.
        with tempfile.TemporaryFile("w+") as output:
            result = subprocess.run(
                [*inside, *user, *command],
                cwd=self.folder,
                stdout=output,
                stderr=output,
                text=True,
                timeout=120,
                check=False,
            )
            output.seek(0)
            result.stderr = output.read()
        return result
