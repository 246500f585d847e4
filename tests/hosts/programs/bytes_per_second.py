"""Sends over TCP from one host to another, and says how fast: bytes_per_second.py receive | send HOST."""

import socket
import sys
import time

PORT, BYTES = 5000, 8_000_000

if sys.argv[1] == "receive":
    with socket.create_server(("", PORT)) as server, server.accept()[0] as link:
        left = BYTES
        while left > 0:
            left -= len(link.recv(1 << 20))
        link.sendall(b"!")
else:
    while True:
        try:
            link = socket.create_connection((sys.argv[2], PORT))
            break
        except ConnectionRefusedError:  # the other has not begun
            time.sleep(0.01)
    begin = time.monotonic()
    link.sendall(bytes(BYTES))
    link.recv(1)
    print(BYTES / (time.monotonic() - begin))
