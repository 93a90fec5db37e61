"""A managed switch between a virtual machine and QEMU's own network: LACP, a VLAN, and a name server.

    machine  port 0 ──┐                                  ┌── a second QEMU without a guest: slirp, 10.0.2.0/24
             port 1 ──┴ bond of LACP, frames of one VLAN ┴── untagged; names are resolved here

QEMU's `socket` networks carry frames over TCP, each behind its length. A frame of the machine is forwarded only from a port whose LACP has come to
an agreement (IEEE 802.1AX: in sync, collecting, distributing), and only with the tag of the VLAN; everything else is counted and dropped. What the
switch has not seen cannot be claimed: the numbers of forwarded and dropped frames are the proof.
"""

import socket
import struct
import subprocess
import threading

SLOW = b"\x88\x09"
TAGGED = b"\x81\x00"
IPV4 = b"\x08\x00"
# Synchronisation, collecting, distributing.
AGREED = 0x08 | 0x10 | 0x20
# The state of this side: active, short time-out, aggregatable, and the three above.
OURS = 0x01 | 0x02 | 0x04 | AGREED
SYSTEM = bytes.fromhex("0200000000fe")
NAME_SERVER = bytes([10, 0, 2, 3])
LONGEST = 1 << 17


class Port:
    """One port for a machine."""

    def __init__(self, switch, number):
        self.switch, self.number, self.connection = switch, number, None
        self.agreed, self.forwarded, self.dropped, self.down = False, 0, 0, False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        self.connection, _ = self.listener.accept()
        for frame in frames(self.connection):
            if not self.down:
                self.switch.from_machine(self, frame)

    def send(self, frame):
        if self.connection is not None and not self.down:
            self.connection.sendall(struct.pack(">I", len(frame)) + frame)


class Switch:
    def __init__(self, vlan, names):
        self.vlan, self.names, self.lock = vlan, names, threading.Lock()
        self.ports = [Port(self, number) for number in range(2)]
        self.last, self.segments, self.questions = None, set(), []
        listener = socket.create_server(("127.0.0.1", 0))
        # A machine without a processor: only its networks work.
        command = ["qemu-system-x86_64", "-machine", "none", "-nodefaults", "-display", "none"]
        for name, kind in (("slirp", "user"), ("switch", f"socket,connect=127.0.0.1:{listener.getsockname()[1]}")):
            command += ["-netdev", f"{kind},id={name}", "-netdev", f"hubport,id=hub-{name},hubid=0,netdev={name}"]
        self.gateway = subprocess.Popen(["timeout", "-k", "2", "3600", *command], stdin=subprocess.DEVNULL)
        self.connection, _ = listener.accept()
        threading.Thread(target=self.from_gateway, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.gateway.terminate()
        self.gateway.wait(30)

    def from_machine(self, port, frame):
        with self.lock:
            kind = frame[12:14]
            if kind == SLOW and frame[14:15] == b"\x01":
                return self.negotiate(port, frame)
            tagged = kind == TAGGED and struct.unpack(">H", frame[14:16])[0] & 0xFFF == self.vlan
            if not (tagged and port.agreed):
                port.dropped += 1
                return None
            port.forwarded += 1
            self.last = port
            return self.inner(frame[:12] + frame[16:])

    def negotiate(self, port, frame):
        """Responds to a LACPDU: what the machine says of itself is what this side has learned of its partner."""
        theirs = frame[18:36]
        port.agreed = theirs[14] & AGREED == AGREED
        ours = struct.pack(">H6sHHHB3x", 0x8000, SYSTEM, 1, 0x80, port.number + 1, OURS)
        body = b"\x01\x01" + b"\x01\x14" + ours + b"\x02\x14" + theirs + b"\x03\x10" + bytes(14) + bytes(52)
        port.send(bytes.fromhex("0180c2000002") + SYSTEM[:5] + bytes([port.number + 1]) + SLOW + body)

    def inner(self, frame):
        """A frame of the VLAN without its tag."""
        if frame[12:14] == IPV4:
            header = (frame[14] & 15) * 4
            payload = frame[14 + header :]
            if frame[23] == 17 and frame[30:34] == NAME_SERVER and payload[2:4] == b"\x00\x35":
                return self.resolve(frame, payload)
            # The largest segment that the machine offers: its MTU less 40.
            if frame[23] == 6 and payload[13] & 0x12 == 0x02 and payload[20:22] == b"\x02\x04":
                self.segments.add(struct.unpack(">H", payload[22:24])[0])
        self.connection.sendall(struct.pack(">I", len(frame)) + frame)
        return None

    def resolve(self, frame, datagram):
        """Responds to a question of DNS: the name has one IPv4 address and none of IPv6 (RFC 1035)."""
        message = datagram[8:]
        labels, at = [], 12
        while length := message[at]:
            labels.append(message[at + 1 : at + 1 + length].decode())
            at += 1 + length
        name, question = ".".join(labels), message[12 : at + 5]
        self.questions.append(name)
        address = self.names.get(name)
        found = address is not None and message[at + 1 : at + 3] == b"\x00\x01"
        answer = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton(address) if found else b""
        flags = 0x8180 if address is not None else 0x8183
        reply = message[:2] + struct.pack(">HHHHH", flags, 1, int(found), 0, 0) + question + answer
        udp = datagram[2:4] + datagram[:2] + struct.pack(">HH", 8 + len(reply), 0) + reply
        header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, NAME_SERVER, frame[26:30])
        header = header[:10] + struct.pack(">H", checksum(header)) + header[12:]
        self.to_machine(frame[6:12] + frame[:6] + IPV4 + header + udp)

    def from_gateway(self):
        for frame in frames(self.connection):
            with self.lock:
                self.to_machine(frame)

    def to_machine(self, frame):
        """A frame for the machine, by the port that it used last."""
        if self.last is not None and self.last.agreed:
            self.last.send(frame[:12] + TAGGED + struct.pack(">H", self.vlan) + frame[12:])


def frames(connection):
    """The frames of a connection, until it ends."""
    stream = connection.makefile("rb")
    try:
        while len(length := stream.read(4)) == 4:
            (size,) = struct.unpack(">I", length)
            if size > LONGEST:
                raise ValueError(f"a frame of {size} bytes")
            yield stream.read(size)
    except OSError:
        # The machine ended.
        return


def checksum(header):
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
