"""A UDP relay on loopback between browser and server. It drops, delays and reorders packets, or
limits the bandwidth. A script makes a page use it."""

import collections
import heapq
import random
import selectors
import socket
import threading
import time

from .polling import wait_until

# The payload type that Chromium offers for VP8. The test checks that the answer uses it.
VP8_PAYLOAD_TYPE = 96
#: A picture with at least this many packets is a key frame or a reference frame. A deep nod takes
#: four.
REFERENCE_FRAME_PACKETS = 5
#: Only a key frame has at least this many packets.
KEY_FRAME_PACKETS = 15
#: A picture of at most this many bytes on the wire shows idle motion or no change, if the one
#: before was that small, too.
IDLE_FRAME_BYTES = 260
#: The bytes of a packet that are not its payload: IP and UDP headers.
HEADER_BYTES = 28
#: The longest time in seconds that a packet waits in front of a narrow link. Packets that would
#: wait longer are dropped.
MAX_QUEUE_DELAY = 0.3
#: The delay of an audio packet on a link with jitter, minimum and maximum, in seconds. One packet
#: in eight is overtaken: the next one is 20 ms behind.
JITTER_RANGE = (0.02, 0.06)
#: The interval in seconds at which the relay checks whether it must stop, if no packet is due
#: earlier.
POLL_INTERVAL = 0.2

# Runs before the page's own scripts. It replaces the answer's UDP candidates with the relay and
# removes those for TCP.
REDIRECT_SCRIPT = """
    const set = RTCPeerConnection.prototype.setRemoteDescription;
    RTCPeerConnection.prototype.setRemoteDescription = function (about) {
      const sdp = about.sdp
        .replace(/(a=candidate:\\S+ 1 udp \\d+) \\S+ \\d+ /gi, '$1 127.0.0.1 PORT ')
        .replace(/a=candidate:\\S+ 1 tcp [^\\r]*\\r\\n/gi, '');
      // The relay learns its target before the browser sends anything.
      const target = about.sdp.match(/a=candidate:\\S+ 1 udp \\d+ (\\S+) (\\d+) /i).slice(1);
      return window.e2eRelay(target).then(() => set.call(this, { type: about.type, sdp }));
    };"""


class UdpRelay(threading.Thread):
    """Drops the share `loss` of the RTP packets that go to the browser. It also drops every second
    packet of the first key frame, and of each other key or reference frame the fifth packet and
    every second one after it. If `rate` is given, it limits the bits per second to the browser. It
    records the timestamps and sizes of all pictures.

    Of the browser's audio packets it drops the share `up_loss`. It delays the others by a random
    time within `jitter` (seconds), which reorders them. Then it holds them until a burst of `burst`
    packets is complete, as on Wi-Fi and mobile networks.
    """

    def __init__(
        self,
        loss: float = 0.0,
        rate: float | None = None,
        seed: int = 1,
        burst: int = 1,
        jitter: tuple[float, float] = (0.0, 0.0),
        up_loss: float = 0.0,
    ):
        super().__init__(daemon=True)
        self.rate, self.burst, self.jitter, self.up_loss = rate, burst, jitter, up_loss
        # A separate random source: the number of packets to the browser does not change which
        # packets to the server are dropped.
        self.up_random = random.Random(seed + 1)
        # The browser's delayed audio packets as a heap: time of release, number, packet.
        self.delayed: list[tuple[float, int, bytes]] = []
        # Released packets that wait until their burst is complete.
        self.burst_packets: list[bytes] = []
        self.uplink_counts = {"packets": 0, "lost": 0, "overtaken": 0, "bursts": 0}
        # The highest number of a released packet.
        self.highest_sent = -1
        # The packets in front of the narrow link, each with its time of release.
        self.downlink_queue = collections.deque()
        self.loss, self.random = loss, random.Random(seed)
        self.browser = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.browser.bind(("127.0.0.1", 0))
        self.server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.port = self.browser.getsockname()[1]
        self.client = self.target = self.first = None
        self.downlink_counts = {"passed": 0, "lost": 0, "of the key": 0, "anchors": 0}
        # Packets and bytes of each picture so far, by timestamp.
        self.frames = {}
        # The timestamps of pictures whose last packet arrived. Before that, a key frame has as many
        # packets as a reference frame.
        self.complete_frames = set()
        self.stopped = threading.Event()

    def drops(self, packet: bytes) -> bool:
        version, kind = packet[0] >> 6, packet[1] & 0x7F
        if version != 2 or 64 <= kind <= 95:  # STUN, DTLS, RTCP
            return False
        if kind == VP8_PAYLOAD_TYPE:
            stamp = int.from_bytes(packet[4:8], "big")
            self.first = stamp if self.first is None else self.first
            count, size = self.frames.get(self.relative_timestamp(stamp), (0, 0))
            self.frames[self.relative_timestamp(stamp)] = (count + 1, size + len(packet))
            if packet[1] & 0x80:
                self.complete_frames.add(self.relative_timestamp(stamp))
            if stamp == self.first:
                self.downlink_counts["of the key"] += 1
            elif count + 1 == REFERENCE_FRAME_PACKETS:
                self.downlink_counts["anchors"] += 1
            if (
                self.loss
                and count % 2 == 0
                and (stamp == self.first or count + 1 >= REFERENCE_FRAME_PACKETS)
            ):
                return True
        return self.random.random() < self.loss

    def relative_timestamp(self, stamp: int) -> int:
        """A timestamp relative to that of the first picture, at 90 kHz."""
        return (stamp - self.first) & 0xFFFFFFFF

    def key_frames(self) -> int:
        """The number of key frames that were sent completely, including the first."""
        return sum(
            self.frames[stamp][0] >= KEY_FRAME_PACKETS for stamp in list(self.complete_frames)
        )

    def reference_frames(self) -> int:
        """The number of pictures that were sent completely, have the size of a reference frame, and
        are no key frames."""
        return sum(
            REFERENCE_FRAME_PACKETS <= self.frames[stamp][0] < KEY_FRAME_PACKETS
            for stamp in list(self.complete_frames)
        )

    def moving_frames(self) -> list[int]:
        """The timestamps, in order, of the pictures that differ from the one before by more than
        idle motion."""
        every = sorted(self.frames)
        large = [self.frames[stamp][1] > IDLE_FRAME_BYTES for stamp in every]
        return [
            stamp
            for stamp, this, before in zip(every, large, [True, *large], strict=False)
            if this or before
        ]

    def run(self):
        with selectors.DefaultSelector() as ready:
            for end in (self.browser, self.server):
                ready.register(end, selectors.EVENT_READ)
            while not self.stopped.is_set():
                now = time.monotonic()
                self.flush_downlink(now)
                self.flush_uplink(now)
                due = [
                    queue[0][0] - time.monotonic()
                    for queue in (self.downlink_queue, self.delayed)
                    if queue
                ]
                for found, _ in ready.select(max(0.0, min([POLL_INTERVAL, *due]))):
                    packet, sender = found.fileobj.recvfrom(2048)
                    if found.fileobj is self.browser:
                        self.client = sender
                        if self.target:
                            self.enqueue_uplink(packet, time.monotonic())
                    elif self.drops(packet):
                        self.downlink_counts["lost"] += 1
                    elif self.client:
                        self.enqueue_downlink(packet, time.monotonic())

    def enqueue_uplink(self, packet: bytes, now: float):
        """Sends a packet to the server: audio through the simulated link, anything else at once.
        The browser sends no RTP but its audio."""
        sound = packet[0] >> 6 == 2 and not 64 <= packet[1] & 0x7F <= 95
        if not sound:
            self.server.sendto(packet, self.target)
            return
        number = self.uplink_counts["packets"]
        self.uplink_counts["packets"] += 1
        if self.up_random.random() < self.up_loss:
            self.uplink_counts["lost"] += 1
            return
        heapq.heappush(self.delayed, (now + self.up_random.uniform(*self.jitter), number, packet))
        self.flush_uplink(now)

    def flush_uplink(self, now: float):
        """Adds the audio packets that are due to the burst, and sends the burst once it is
        complete."""
        while self.delayed and self.delayed[0][0] <= now:
            _, number, packet = heapq.heappop(self.delayed)
            self.uplink_counts["overtaken"] += number < self.highest_sent
            self.highest_sent = max(self.highest_sent, number)
            self.burst_packets.append(packet)
            if len(self.burst_packets) >= self.burst:
                self.uplink_counts["bursts"] += 1
                for one in self.burst_packets:
                    self.server.sendto(one, self.target)
                self.burst_packets.clear()

    def enqueue_downlink(self, packet: bytes, now: float):
        """Queues a packet, unless it would wait too long."""
        through = now
        if self.rate:
            through = (
                max(now, self.downlink_queue[-1][0] if self.downlink_queue else now)
                + (len(packet) + HEADER_BYTES) * 8 / self.rate
            )
        if through > now + MAX_QUEUE_DELAY:
            self.downlink_counts["lost"] += 1
            return
        self.downlink_counts["passed"] += 1
        self.downlink_queue.append((through, packet))
        self.flush_downlink(now)

    def flush_downlink(self, now: float):
        """Sends the packets that are due."""
        while self.downlink_queue and self.downlink_queue[0][0] <= now:
            self.browser.sendto(self.downlink_queue.popleft()[1], self.client)

    def intercept(self, page):
        """Routes this page's calls through the relay."""
        page.page.expose_function("e2eRelay", self.set_target)
        page.context.add_init_script(REDIRECT_SCRIPT.replace("PORT", str(self.port)))

    def wait_for(self, holds, what: str, timeout: float = 60):
        """Waits until `holds()` is true for the relayed packets."""
        wait_until(holds, lambda: f"{what}: {self.downlink_counts}", timeout)

    def set_target(self, address):
        host, port = address
        self.target = (host, int(port))

    def close(self):
        self.stopped.set()
        self.join()
        self.browser.close()
        self.server.close()
