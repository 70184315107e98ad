"""Decisions on the page in a real Chromium, against those of the command line in processes of their own."""

import asyncio
import json
from pathlib import Path

from playwright.async_api import Page, Route, expect

from evener import Harness, SqliteStore
from evener import events as ev
from evener.store.protocol import Store
from evener.testing.scripted_model import ScriptedModel, calls
from evener.toolset.question import question_tool
from evener.transcript.blocks import ToolCall
from tests.cli.run import Home
from tests.to_the_end import to_the_end
from tests.view.browser import NEEDED, looking
from tests.view.stage import edit, look

pytestmark = NEEDED
ROOT = Path(__file__).parents[2]


def editor(store: Store) -> Harness:
    call = calls(ToolCall.of("e1", "edit", {"path": "a", "old_string": "x", "new_string": "y"}))
    return Harness(ScriptedModel([call, "done"]), tools=[look, edit], store=store, name="editor")


async def decide_by_command(home: Home, path: Path, thread: str, *words: str) -> tuple[int, str]:
    """Run `evener reject` or `evener approve` to its end; what it exits with, and what it says."""
    more = ("--store", str(path), "--tools", "tests.view.stage:edit")
    process = home.start(words[0], thread, *words[1:], *more, environ={"PYTHONPATH": str(ROOT)})
    _, said = await asyncio.to_thread(process.communicate)
    return process.returncode, said.decode()


async def choose(page: Page, title: str, button: str) -> None:
    form = page.get_by_role("form", name=f"Approval in {title}")
    await form.get_by_role("button", name=button, exact=True).click()


async def decided_in(store: Store, harness: Harness, thread: str) -> list[tuple[str, str]]:
    """Resume the run, and return the decisions that its log has."""
    await harness.resume(thread)
    return [(one.verdict, one.by) for one in await store.read(thread) if isinstance(one, ev.ApprovalDecided)]


@to_the_end
async def test_of_a_page_and_a_command_that_decide_at_once_one_wins_and_the_other_sees_why(tmp_path: Path) -> None:
    path, home = tmp_path / "store.db", Home(tmp_path)
    store = SqliteStore(path)
    titles = ["first here", "first there", *(f"both {n}" for n in range(3))]
    harnesses = {title: editor(store) for title in titles}
    threads = {title: (await harness.run(title)).thread for title, harness in harnesses.items()}
    reject = ("reject", "--why", "no")
    async with looking(store) as watched:
        page = await watched.open("#/approvals")
        await expect(page.locator("form.decide")).to_have_count(len(titles))
        for title in titles:
            await choose(page, title, "approve")

        await choose(page, "first here", "Decide")
        await expect(page.get_by_text("Decided: first here.")).to_be_visible()
        code, said = await decide_by_command(home, path, threads["first here"], *reject)
        assert (code, "was decided already" in said) == (1, True), said

        await page.route("**/api/approvals", lambda route: route.abort())  # so the page does not learn of it by itself
        code, said = await decide_by_command(home, path, threads["first there"], *reject)
        assert (code, "Rejected: e1" in said) == (0, True), said
        await choose(page, "first there", "Decide")
        form = page.get_by_role("form", name="Approval in first there")
        await expect(form.get_by_role("alert")).to_contain_text("is already decided. Resume it: the first decision counts.")
        await page.unroute("**/api/approvals")

        async def race(title: str) -> tuple[int, str]:
            clicked = asyncio.Event()

            async def hold(route: Route) -> None:  # so the form is there to be clicked, even if the command was sooner
                await clicked.wait()
                await route.continue_()

            await page.route("**/api/approvals", hold)
            command = asyncio.create_task(decide_by_command(home, path, threads[title], *reject))
            await choose(page, title, "Decide")
            clicked.set()
            end = await command
            await page.unroute("**/api/approvals", hold)
            return end

        ends = {title: await race(title) for title in titles[2:]}
        for title, (code, said) in ends.items():
            won = f"Decided: {title}." if code else f"{title} was decided elsewhere, or its run went on."
            await expect(page.get_by_text(won)).to_be_visible()
            assert ("decided already" in said or "the first decision counts" in said) == (code == 1), said
        watched.said.clear()  # refusals, and the requests that this test gave up
    verdicts = {title: await decided_in(store, harnesses[title], thread) for title, thread in threads.items()}
    assert verdicts["first here"] == [("allow", "tester")]
    assert [verdict for verdict, _ in verdicts["first there"]] == ["reject"]
    for title, (code, _) in ends.items():
        assert [verdict for verdict, _ in verdicts[title]] == ["allow" if code else "reject"]
    await store.aclose()


@to_the_end
async def test_a_call_is_edited_or_rejected_with_a_reason_and_large_numbers_stay_as_they_are(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    harnesses = {title: editor(store) for title in ("edited", "rejected")}
    threads = {title: (await harness.run(title)).thread for title, harness in harnesses.items()}
    async with looking(store) as watched:
        page = await watched.open("#/approvals")
        await choose(page, "edited", "edit")
        form = page.get_by_role("form", name="Approval in edited")
        await expect(form.locator(".row.removed").first).to_have_text("-x\n")
        raw = '{"path": "12345678901234567891", "old_string": "x", "new_string": "z"}'
        await form.get_by_label("New arguments").fill(raw)
        await expect(form.get_by_text("Your change")).to_be_visible()
        await form.get_by_label("Reason").fill("another file")
        await choose(page, "edited", "Decide")
        await expect(page.get_by_text("Decided: edited.")).to_be_visible()
        await choose(page, "rejected", "reject")
        await page.get_by_role("form", name="Approval in rejected").get_by_label("Reason").fill("not today")
        await choose(page, "rejected", "Decide")
        await expect(page.get_by_text("Nothing waits for a decision.")).to_be_visible()
    for title, harness in harnesses.items():
        await harness.resume(threads[title])
    events = {title: await store.read(thread) for title, thread in threads.items()}
    made = {title: next(one for one in all_ if isinstance(one, ev.ApprovalDecided)) for title, all_ in events.items()}
    assert (json.loads(made["edited"].arguments), made["edited"].why) == (json.loads(raw), "another file")
    assert (made["rejected"].verdict, made["rejected"].why) == ("reject", "not today")
    await store.aclose()


@to_the_end
async def test_a_question_of_the_model_is_answered_on_the_page(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")

    def asking(**more: object) -> Harness:
        call = ToolCall.of("q1", "ask_user", {"question": "Which file?", **more})
        return Harness(ScriptedModel([calls(call), "thanks"]), tools=[question_tool()], store=store, name="asker")

    harnesses = {"typed": asking(), "chosen": asking(choices=["a.py", "b.py"]), "silent": asking()}
    threads = {title: (await harness.run(title)).thread for title, harness in harnesses.items()}
    async with looking(store) as watched:
        page = await watched.open("#/approvals")
        form = page.get_by_role("form", name="Approval in typed")
        await expect(form).to_contain_text("The model asks")
        await form.get_by_label("Answer").fill("c.py, I think")
        await choose(page, "typed", "Send")
        await choose(page, "chosen", "b.py")
        await choose(page, "chosen", "Send")
        await choose(page, "silent", "do not answer")
        await page.get_by_role("form", name="Approval in silent").get_by_label("Reason").fill("find it yourself")
        await choose(page, "silent", "Send")
        await expect(page.get_by_text("Nothing waits for a decision.")).to_be_visible()
    said = {title: (await harness.resume(threads[title])).records[0].result for title, harness in harnesses.items()}
    texts = {title: " ".join(block.text for block in result.content) for title, result in said.items() if result}  # type: ignore[union-attr]
    assert "c.py, I think" in texts["typed"]
    assert "b.py" in texts["chosen"]
    assert "find it yourself" in texts["silent"]
    await store.aclose()
