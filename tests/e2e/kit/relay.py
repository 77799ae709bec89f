"""A way between browser and server that loses, delays and swaps packets or is narrow: a UDP relay on loopback, and the script that makes a page take it."""

import collections
import heapq
import random
import selectors
import socket
import threading
import time

# What Chromium offers for VP8; the test looks whether the answer took it.
VP8 = 96
#: Packets from which on a picture is a key or an anchor: a deep nod takes four.
ANCHOR = 5
#: Packets that only a key takes.
KEY = 15
#: Bytes on the wire up to which a picture is a breath beside the one before, if that was as small, or the same again.
BREATH = 260
#: What of a packet is not its payload: IP and UDP.
HEADERS = 28
#: Seconds that the last packet waits at most before a narrow line; what comes then is lost.
DEEPEST = 0.3
#: Seconds that a packet of sound is late on a line with jitter, at least and at most. One in eight is overtaken: the next one is 20 ms behind.
JITTER = (0.02, 0.06)
#: Seconds after which the relay looks whether it is over, where no packet is due before.
LOOK = 0.2

# To be run before the page's own scripts: the answer's UDP candidates become the relay, those of TCP go.
DETOUR = """
    const set = RTCPeerConnection.prototype.setRemoteDescription;
    RTCPeerConnection.prototype.setRemoteDescription = function (about) {
      const sdp = about.sdp.replace(/(a=candidate:\\S+ 1 udp \\d+) \\S+ \\d+ /gi, '$1 127.0.0.1 PORT ').replace(/a=candidate:\\S+ 1 tcp [^\\r]*\\r\\n/gi, '');
      // Where the relay shall send to, told before the browser sends anything.
      return window.e2eRelay(about.sdp.match(/a=candidate:\\S+ 1 udp \\d+ (\\S+) (\\d+) /i).slice(1)).then(() => set.call(this, { type: about.type, sdp }));
    };"""


class Relay(threading.Thread):
    """Loses this share of the RTP packets that go to the browser, every second one of the first key, and of every other key and anchor the
    fifth and what follows that by twos. Lets through no more than so many bits a second to the browser, if told. Keeps time stamps and
    sizes of all pictures.

    Of the browser's packets of sound it loses the share `up_loss`. The others are late by a random time between those of `jitter` in seconds,
    which changes their order, and then wait until a burst of so many is whole, as on Wi-Fi and mobile networks."""

    def __init__(
        self, loss: float = 0.0, rate: float | None = None, seed: int = 1, burst: int = 1, jitter: tuple[float, float] = (0.0, 0.0), up_loss: float = 0.0
    ):
        super().__init__(daemon=True)
        self.rate, self.burst, self.jitter, self.up_loss = rate, burst, jitter, up_loss
        # Draws of its own: how many packets go to the browser by then does not change what is lost on the way to the server.
        self.up_random = random.Random(seed + 1)
        # The browser's packets of sound that are late: when each is through, its number, itself. A heap.
        self.late: list[tuple[float, int, bytes]] = []
        # Those that wait until their burst is whole.
        self.held: list[bytes] = []
        self.sound = {"packets": 0, "lost": 0, "overtaken": 0, "bursts": 0}
        # The highest number that is through.
        self.newest = -1
        # What waits before the narrow line, with the time when each is through.
        self.waiting = collections.deque()
        self.loss, self.random = loss, random.Random(seed)
        self.browser = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.browser.bind(("127.0.0.1", 0))
        self.server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.port = self.browser.getsockname()[1]
        self.client = self.target = self.first = None
        self.counts = {"passed": 0, "lost": 0, "of the key": 0, "anchors": 0}
        # By time stamp: packets and bytes of a picture so far.
        self.pictures = {}
        # The time stamps of those whose last packet came: before it, a key has as many packets as an anchor.
        self.whole = set()
        self.over = threading.Event()

    def loses(self, packet: bytes) -> bool:
        version, kind = packet[0] >> 6, packet[1] & 0x7F
        if version != 2 or 64 <= kind <= 95:  # STUN, DTLS, RTCP
            return False
        if kind == VP8:
            stamp = int.from_bytes(packet[4:8], "big")
            self.first = stamp if self.first is None else self.first
            count, size = self.pictures.get(self.since(stamp), (0, 0))
            self.pictures[self.since(stamp)] = (count + 1, size + len(packet))
            if packet[1] & 0x80:
                self.whole.add(self.since(stamp))
            if stamp == self.first:
                self.counts["of the key"] += 1
            elif count + 1 == ANCHOR:
                self.counts["anchors"] += 1
            if self.loss and count % 2 == 0 and (stamp == self.first or count + 1 >= ANCHOR):
                return True
        return self.random.random() < self.loss

    def since(self, stamp: int) -> int:
        """A time stamp since the first picture's, at 90 kHz."""
        return (stamp - self.first) & 0xFFFFFFFF

    def keys(self) -> int:
        """How many keys were sent whole, the first among them."""
        return sum(self.pictures[stamp][0] >= KEY for stamp in list(self.whole))

    def anchors(self) -> int:
        """How many pictures of the size of an anchor were sent whole that are no key."""
        return sum(ANCHOR <= self.pictures[stamp][0] < KEY for stamp in list(self.whole))

    def moving(self) -> list[int]:
        """The time stamps of those pictures that are more than a breath beside the one before, in order."""
        every = sorted(self.pictures)
        large = [self.pictures[stamp][1] > BREATH for stamp in every]
        return [stamp for stamp, this, before in zip(every, large, [True, *large]) if this or before]

    def run(self):
        with selectors.DefaultSelector() as ready:
            for end in (self.browser, self.server):
                ready.register(end, selectors.EVENT_READ)
            while not self.over.is_set():
                now = time.monotonic()
                self.pass_on(now)
                self.pass_up(now)
                due = [queue[0][0] - time.monotonic() for queue in (self.waiting, self.late) if queue]
                for found, _ in ready.select(max(0.0, min([LOOK, *due]))):
                    packet, sender = found.fileobj.recvfrom(2048)
                    if found.fileobj is self.browser:
                        self.client = sender
                        if self.target:
                            self.enter_up(packet, time.monotonic())
                    elif self.loses(packet):
                        self.counts["lost"] += 1
                    elif self.client:
                        self.enter(packet, time.monotonic())

    def enter_up(self, packet: bytes, now: float):
        """Sends a packet to the server at once, but for those of sound. The browser sends no RTP but its sound."""
        sound = packet[0] >> 6 == 2 and not 64 <= packet[1] & 0x7F <= 95
        if not sound:
            self.server.sendto(packet, self.target)
            return
        number = self.sound["packets"]
        self.sound["packets"] += 1
        if self.up_random.random() < self.up_loss:
            self.sound["lost"] += 1
            return
        heapq.heappush(self.late, (now + self.up_random.uniform(*self.jitter), number, packet))
        self.pass_up(now)

    def pass_up(self, now: float):
        """Adds the sound that is through by now to its burst, and sends each burst that is whole."""
        while self.late and self.late[0][0] <= now:
            _, number, packet = heapq.heappop(self.late)
            self.sound["overtaken"] += number < self.newest
            self.newest = max(self.newest, number)
            self.held.append(packet)
            if len(self.held) >= self.burst:
                self.sound["bursts"] += 1
                for one in self.held:
                    self.server.sendto(one, self.target)
                self.held.clear()

    def enter(self, packet: bytes, now: float):
        """Puts a packet behind those that wait, unless they wait too long."""
        through = now
        if self.rate:
            through = max(now, self.waiting[-1][0] if self.waiting else now) + (len(packet) + HEADERS) * 8 / self.rate
        if through > now + DEEPEST:
            self.counts["lost"] += 1
            return
        self.counts["passed"] += 1
        self.waiting.append((through, packet))
        self.pass_on(now)

    def pass_on(self, now: float):
        """Sends what is through by now."""
        while self.waiting and self.waiting[0][0] <= now:
            self.browser.sendto(self.waiting.popleft()[1], self.client)

    def lead(self, page):
        """Makes this page's calls take the relay."""
        page.page.expose_function("e2eRelay", self.aim)
        page.context.add_init_script(DETOUR.replace("PORT", str(self.port)))

    def until(self, holds, what: str, timeout: float = 60):
        """Waits until `holds()` is true of what has passed."""
        end = time.monotonic() + timeout
        while not holds():
            assert time.monotonic() < end, f"waited {timeout} s for {what}: {self.counts}"
            threading.Event().wait(0.05)

    def aim(self, address):
        host, port = address
        self.target = (host, int(port))

    def close(self):
        self.over.set()
        self.join()
        self.browser.close()
        self.server.close()
