"""Whether a program of this image does its work, told by its metrics: exit 0 or 1. One request, no imports of ours.

Usage: healthy.py PORT [GAUGE], where a gauge must be 1: ``healthy.py 9431 roofwatch_store_serving``.
"""

import http.client
import sys


def main() -> str:
    """What is wrong, "" for nothing."""
    port, gauge = int(sys.argv[1]), (sys.argv[2:] or [""])[0]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=4)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        lines = answer.read().decode().splitlines()
    except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
        return f"no metrics on port {port}: {error}"
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        return f"no metrics on port {port}: {answer.status}"
    if gauge and f"{gauge} 1.0" not in lines:
        return f"{gauge} is not 1"
    return ""


if __name__ == "__main__":
    sys.exit(main() or 0)
