"""Results of threads on the event loop: each reaches who waits for it, and many at once wake the loop once."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from roofwatch.store.bridge import Bridge


def test_every_result_arrives() -> None:
    """Of a thousand calls on four threads, failures among them, each gives its own."""

    def third(number: int) -> int:
        if number % 3 == 0:
            raise ValueError(str(number))
        return number

    async def ask() -> list[object]:
        bridge = Bridge()
        with ThreadPoolExecutor(4) as pool:
            return await asyncio.gather(
                *(bridge.result(pool.submit(third, n)) for n in range(1000)), return_exceptions=True
            )

    found = asyncio.run(ask())
    assert [str(one) for one in found] == [str(n) for n in range(1000)]
    assert [isinstance(one, ValueError) for one in found] == [n % 3 == 0 for n in range(1000)]


def test_a_group_wakes_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve segments of one commit, resolved by one thread; one of those who wait has gone meanwhile."""
    woken = []

    async def ask() -> list[object]:
        bridge, loop = Bridge(), asyncio.get_running_loop()
        futures: list[Future[int]] = [Future() for _ in range(12)]
        waiting = [asyncio.create_task(bridge.result(one)) for one in futures]
        await asyncio.sleep(0)
        waiting[3].cancel()
        await asyncio.sleep(0)
        call = loop.call_soon_threadsafe
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *given: (woken.append(given), call(*given))[1])
        for number, one in enumerate(futures):
            one.set_result(number)
        return await asyncio.gather(*waiting, return_exceptions=True)

    found = asyncio.run(ask())
    assert len(woken) == 1
    assert found[:3] + found[4:] == [*range(3), *range(4, 12)]
    assert isinstance(found[3], asyncio.CancelledError)
