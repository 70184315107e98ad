"""Something the user is asked while a run waits for it. A value with an answer to come; shows nothing."""

import asyncio

__all__ = ["Question"]


class Question:
    """Something the user is asked. With `letters` one key answers it, else a line does."""

    def __init__(self, text: str, letters: dict[str, str] | None = None) -> None:
        self.text = text
        self.letters = letters or {}
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def give(self, answer: str, *, empty: bool = False) -> None:
        if not self.answer.done() and (answer or empty):
            self.answer.set_result(answer)
