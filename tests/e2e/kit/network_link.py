"""A network namespace with one link to this machine. A test drops packets of the link, or limits
its bandwidth. Needs root."""

import itertools
import os
import pathlib
import shlex

import pytest

from .own_postgres import DROP_ALL, run

#: The third number of the addresses is one of this process, so that runs do not disturb each other.
SUBNET = f"10.214.{os.getpid() % 256}"

counter = itertools.count()


class NetworkLink:
    """`host` and `inside` are the addresses of its two ends."""

    def __init__(self):
        if os.geteuid() != 0:
            pytest.skip("namespaces need root")
        number = next(counter)
        self.name = f"visavis-link-{os.getpid()}-{number}"
        # A name has at most 15 characters.
        self.interface = f"vl{os.getpid() % 10_000_000}-{number}"
        self.host, self.inside = f"{SUBNET}.{4 * number + 1}", f"{SUBNET}.{4 * number + 2}"
        run("ip", "netns", "add", self.name)
        peer = f"type veth peer name link0 netns {self.name}"
        run(*f"ip link add {self.interface} {peer}".split())
        run(*f"ip addr add {self.host}/30 dev {self.interface}".split())
        run(*f"ip link set {self.interface} up".split())
        self.run_inside(*f"ip addr add {self.inside}/30 dev link0".split())
        self.run_inside(*"ip link set link0 up".split())
        self.run_inside(*"ip link set lo up".split())

    def run_inside(self, *command: str):
        """Runs a command in the namespace."""
        run("ip", "netns", "exec", self.name, *command)

    def wrap(self, binary: str, folder: pathlib.Path) -> pathlib.Path:
        """A program that runs a binary in the namespace. It listens at the inner end of the link
        where it is told to listen on loopback, which nobody outside can reach."""
        program = folder / self.name
        arguments = f'"${{@/#127.0.0.1:/{self.inside}:}}"'
        command = f"exec ip netns exec {self.name} {shlex.quote(binary)} {arguments}"
        program.write_text(f"#!/usr/bin/env bash\n{command}\n")
        program.chmod(0o755)
        return program

    def cut_udp(self):
        """Drops all UDP packets in both directions. TCP goes on."""
        for tc, device in ((run, self.interface), (self.run_inside, "link0")):
            tc(*f"tc qdisc add dev {device} root handle 1: htb default 1".split())
            for number in (1, 2):
                speed = f"classid 1:{number} htb rate 10gbit"
                tc(*f"tc class add dev {device} parent 1: {speed}".split())
            tc(*f"tc qdisc add dev {device} parent 1:2".split(), *DROP_ALL)
            match = "protocol ip u32 match ip protocol 17 0xff flowid 1:2"
            tc(*f"tc filter add dev {device} parent 1: {match}".split())

    def heal(self):
        """Ends `cut_udp`."""
        for tc, device in ((run, self.interface), (self.run_inside, "link0")):
            tc(*f"tc qdisc del dev {device} root".split())

    def limit(self, kbits: int):
        """Limits what leaves the namespace. Packets wait for .3 s at most."""
        self._set_rate(f"{kbits}kbit")

    def widen(self):
        """Ends `limit`. Packets that wait are not lost."""
        self._set_rate("10gbit")

    def _set_rate(self, rate: str):
        shape = f"tbf rate {rate} burst 4kb latency 300ms"
        self.run_inside(*f"tc qdisc replace dev link0 root {shape}".split())

    def close(self):
        run("ip", "link", "del", self.interface)
        run("ip", "netns", "del", self.name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
