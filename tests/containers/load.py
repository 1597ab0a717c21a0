"""Runs inside the stack: requests without a pause, on kept connections and on fresh ones, until the
port is closed. Prints the counts of their outcomes as one line of JSON.

A request counts as accepted once its connection has carried a response, or once the request was
begun before the end: none of these may fail.

    load.py HOST PORT PATH TOKEN
"""

import http.client
import json
import sys
import threading
import time

host, port, path, token = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
headers = {"Authorization": f"Bearer {token}"}
counts = {"responded": 0, "wrong_status": 0, "lost": 0, "not_accepted": 0, "slow_responded": 0, "slow_lost": 0}
lock = threading.Lock()


def count(what):
    with lock:
        counts[what] += 1


def kept():
    """Sends requests on a connection for as long as the responses allow."""
    while True:
        connection = http.client.HTTPConnection(host, port, timeout=30)
        served = False
        try:
            connection.connect()
        except OSError:
            return
        try:
            while True:
                connection.request("GET", path, headers=headers)
                response = connection.getresponse()
                response.read()
                count("responded" if response.status == 200 else "wrong_status")
                served = True
                if response.will_close:
                    break
        except (OSError, http.client.HTTPException):
            # A fresh connection: the port closed before a program accepted it.
            count("lost" if served else "not_accepted")
        finally:
            connection.close()


def slow(begun):
    """Holds a request half sent while the program stops."""
    connection = http.client.HTTPConnection(host, port, timeout=60)
    try:
        connection.putrequest("POST", path)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", "10")
        connection.endheaders(b"half ")
        begun.set()
        time.sleep(5)
        connection.send(b"half!")
        response = connection.getresponse()
        response.read()
        count("slow_responded" if response.status == 200 else "wrong_status")
    except (OSError, http.client.HTTPException):
        count("slow_lost")


def main():
    begun = [threading.Event() for _ in range(4)]
    threads = [threading.Thread(target=slow, args=(event,)) for event in begun]
    threads += [threading.Thread(target=kept) for _ in range(8)]
    for thread in threads:
        thread.start()
    for event in begun:
        event.wait()
    while counts["responded"] < 100:
        time.sleep(0.01)
    print("under load", flush=True)
    for thread in threads:
        thread.join()
    print(json.dumps(counts), flush=True)


main()
