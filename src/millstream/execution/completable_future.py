"""CompletableFuture: what ``JobClient`` answers with, as PyFlink's does.

What it is: a value that is there already, or comes from a call that waits in a thread of its own.
What it is not: a way to start work; a job runs whether or not somebody asks for its result.

Read next: ``execution/job_client.py``.
"""

from __future__ import annotations

import concurrent.futures
import threading
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CompletableFuture"]

T = TypeVar("T")
#: Waking up now and then lets the main thread take a keyboard interrupt on every platform.
_WAIT_SECONDS: Final = 0.2


class CompletableFuture(Generic[T]):
    """A value that comes later, or the error that came in its place."""

    def __init__(self) -> None:
        """Use ``completed_future`` or ``supply_async``."""
        self._future: concurrent.futures.Future[T] = concurrent.futures.Future()

    @staticmethod
    def completed_future(value: T) -> CompletableFuture[T]:
        """One whose value is known."""
        made: CompletableFuture[T] = CompletableFuture()
        made._future.set_result(value)
        return made

    @staticmethod
    def supply_async(supplier: Callable[[], T]) -> CompletableFuture[T]:
        """One whose value ``supplier`` returns; it is called in a thread that ends no later."""
        made: CompletableFuture[T] = CompletableFuture()
        thread = threading.Thread(
            target=made._fill, args=(supplier,), name="millstream-future", daemon=True
        )
        thread.start()
        return made

    def _fill(self, supplier: Callable[[], T]) -> None:
        try:
            value = supplier()
        except BaseException as error:  # noqa: BLE001 - raised to whoever asks for the result
            # False: it was cancelled meanwhile, and nobody wants the value.
            if self._future.set_running_or_notify_cancel():
                self._future.set_exception(error)
        else:
            if self._future.set_running_or_notify_cancel():
                self._future.set_result(value)

    def cancel(self) -> bool:
        """Give up waiting for the value; what makes it goes on.

        Returns:
            Whether it is cancelled; False if the value was there before.
        """
        return self._future.cancel()

    def cancelled(self) -> bool:
        """Whether it was cancelled before the value was there."""
        return self._future.cancelled()

    def done(self) -> bool:
        """Whether there is a value or an error, or it was cancelled."""
        return self._future.done()

    def result(self) -> T:
        """Wait for the value.

        Raises:
            CancelledError: of ``concurrent.futures``: it was cancelled.
            Exception: what came in the place of the value.
        """
        while True:
            try:
                return self._future.result(_WAIT_SECONDS)
            except TimeoutError:
                # Also what the call itself may have raised.
                if self._future.done():
                    raise

    def exception(self) -> BaseException | None:
        """The error that came in the place of the value; None if there is none so far."""
        if not self._future.done() or self._future.cancelled():
            return None
        return self._future.exception()

    def __str__(self) -> str:
        """Whether it is done, and how."""
        if not self.done():
            state = "not completed"
        elif self.cancelled():
            state = "cancelled"
        elif self._future.exception() is not None:
            state = f"completed exceptionally: {self._future.exception()!r}"
        else:
            state = "completed normally"
        return f"CompletableFuture[{state}]"
