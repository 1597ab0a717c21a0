"""The service of overlays/dev: it ends on a signal, also as the first process of a container."""

import signal
import socket
import subprocess
import sys
import time

from kubernetes import K8S

SOURCE = (K8S / "overlays/dev/service.py").read_text()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def reached(port):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=5)
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise AssertionError(f"nothing listens on {port}")


def test_it_ends_at_sigterm_while_a_client_is_connected():
    """Process 1 has no default for a signal: without a handler it runs until it is killed."""
    port = free_port()
    assert '("127.0.0.1", 3000)' in SOURCE
    source = SOURCE.replace('("127.0.0.1", 3000)', f'("127.0.0.1", {port})')
    service = subprocess.Popen([sys.executable, "-c", source], stderr=subprocess.DEVNULL)
    try:
        with reached(port):
            service.send_signal(signal.SIGTERM)
            # Minus the number of the signal if the kernel ended it.
            assert service.wait(timeout=30) == 0
    finally:
        service.kill()
