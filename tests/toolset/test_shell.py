"""The shell: what a hostile command can do inside of either sandbox, as this user and as another one."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from secrets import randbelow
from tempfile import TemporaryDirectory
from threading import Event

import pytest
from msgspec.structs import replace

from evener import Harness
from evener.streaming import ToolStarted
from evener.testing import ScriptedModel, calls
from evener.tools import Envelope, tool
from evener.toolset import Fence, FileTools, SearchTools, ShellTools
from evener.toolset.shell.command import RunningCommand
from evener.toolset.shell.sandbox import SandboxRefused, bwrap_works, landlock_works
from evener.transcript import ToolCall
from tests.patience import PATIENCE, at_some_pace, wait_until
from tests.toolset.calls import Caller


def no_sandbox() -> str:
    """Return why no sandbox works here; empty if one does. A condition is a text where finding out starts a process."""
    return landlock_works() and bwrap_works()


pytestmark = pytest.mark.skipif("no_sandbox()", reason="no sandbox works here")
NEEDS_BWRAP = pytest.mark.skipif("bwrap_works()", reason="bubblewrap does not work here")
BOTH = [
    pytest.param("landlock", marks=pytest.mark.skipif(bool(landlock_works()), reason=landlock_works() or "works")),
    pytest.param("bwrap", marks=NEEDS_BWRAP),
]
SECRET = "sk-evener-planted-0123456789"


@pytest.fixture(params=BOTH)
def shell(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShellTools]:
    monkeypatch.setenv("PLANTED_API_KEY", SECRET)
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").write_text(SECRET)
    made = ShellTools(tmp_path / "root", prefer=request.param, processes=40)
    yield made
    made.close()


def run(shell: ShellTools, command: str, **more: object) -> Envelope:
    return Caller(shell.tools).call("shell", {"command": command, "seconds": 600, **more})


def fresh_number() -> str:
    """A number of seconds that no other process of this machine has on its command line: other workers play the same tests."""
    return f"7{randbelow(10**8):08}.{randbelow(10**9):09}"


def processes_with(mark: str) -> list[str]:
    """Which processes have this text in their command lines."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if mark in line:
                found.append(line)
    return found


def test_a_command_works_in_its_folder(shell: ShellTools) -> None:
    result = run(
        shell, "echo one > a && mkdir b && mv a b/ && chmod 700 b/a && touch -d 2001-01-01 b/a && cat b/a && stat -c %a b/a"
    )
    assert result.text == "one\n700\n"
    assert run(shell, "exit 3").text == "[exit code 3]"
    assert run(shell, "echo out; echo err >&2; false").text == "out\nerr\n\n[exit code 1]"
    assert run(shell, "true").text == "(no output)"
    assert run(shell, "python3 -c 'print(6 * 7)'").text == "42\n"


@pytest.mark.parametrize(
    "command",
    [
        "cat ../outside",
        "cat $(pwd)/../outside",
        "ln -s ../outside link; cat link",
        "ln ../outside link; cat link",
        "cat /etc/shadow",
        "ls /root",
        "ls /home",
        "cat /proc/1/environ",
        "for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; done",
        "env; export; set",
        "cat ../outside > copy; cp ../outside copy; cat copy",
        "python3 -c \"import os; print(open(os.open('..', os.O_RDONLY | os.O_PATH)))\"",
    ],
)
def test_nothing_outside_can_be_read(shell: ShellTools, command: str) -> None:
    shown = run(shell, command).text
    assert SECRET not in shown
    assert "PLANTED" not in shown
    assert "root:" not in shown


@pytest.mark.parametrize(
    "command",
    [
        "echo x > ../outside",
        "rm -f ../outside",
        "mv ../outside .",
        "chmod 777 ../outside",
        "chmod 777 $(pwd)/../outside",
        "ln -s ../outside link; chmod 777 link; echo x > link; touch link",
        "touch -d 2001-01-01 ../outside",
        "chown 1:1 ../outside",
        "truncate -s 0 ../outside",
        "echo x > ../new",
        "python3 -c \"import os; os.fchmod(os.open('/usr/bin/env', 0), 0o777)\"",
    ],
)
def test_nothing_outside_can_be_changed(shell: ShellTools, command: str, tmp_path: Path) -> None:
    before = ((tmp_path / "outside").stat(), Path("/usr/bin/env").stat().st_mode)
    run(shell, command)
    after = ((tmp_path / "outside").stat(), Path("/usr/bin/env").stat().st_mode)
    assert before[1] == after[1]
    assert (before[0].st_mode, before[0].st_mtime, before[0].st_uid) == (after[0].st_mode, after[0].st_mtime, after[0].st_uid)
    assert (tmp_path / "outside").read_text() == SECRET
    assert sorted(os.listdir(tmp_path)) == ["outside", "root"]


@pytest.mark.parametrize(
    "code",
    [
        "socket.socket()",
        "socket.socket(socket.AF_UNIX)",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_INET6)",
        "socket.create_connection(('127.0.0.1', 80))",
        "ctypes.CDLL(None, use_errno=True).unshare(0x10000000) and os.abort()",
        "ctypes.CDLL(None, use_errno=True).ptrace(16, os.getppid(), 0, 0) and os.abort()",
        "ctypes.CDLL(None, use_errno=True).mount(b'x', b'/', b'tmpfs', 0, None) and os.abort()",
        "open('/dev/tty', 'w')",
        "fcntl.ioctl(0, 0x5412, b'x')",
        "os.kill(1, 0) if os.getpid() > 50 else os.abort()",
        "resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (1, 1)) if os.getpid() > 50 else os.abort()",
    ],
)
def test_no_network_no_namespaces_no_tracing_no_terminal(shell: ShellTools, code: str) -> None:
    names = "ctypes, fcntl, os, resource, socket"
    assert run(shell, f'python3 -c "import {names}; {code}"').metadata["exit"] != 0


def test_everything_a_command_started_is_gone_when_it_ends(shell: ShellTools) -> None:
    long = f"sleep {fresh_number()}"
    result = run(shell, f"(setsid {long} &); (setsid setsid bash -c '{long} & {long}' &); {long} & echo done")
    assert result.text.startswith("done\n")
    assert processes_with(long.split()[1]) == []


def test_times_and_modes_are_changed_as_without_a_sandbox(shell: ShellTools) -> None:
    """What `tar`, `cp` and `touch` do to symlinks, to one of the two times, and to a file that was removed."""
    run(shell, "mkdir from to; ln -s /usr/bin/env from/out; ln -s nowhere from/lost; touch -h -d 2001-01-01 from/*; touch file")
    assert run(shell, "tar c -C from . | tar x --no-same-owner -C to; stat -c %Y to/out to/lost").text == "978307200\n" * 2
    assert run(shell, "touch -d 2001-01-01 file; touch -a file; stat -c %Y file").text == "978307200\n"
    assert run(shell, "touch -d 2001-01-01 file; touch -m file; stat -c %X file").text == "978307200\n"
    assert run(shell, "touch -d 2001-01-01 file; touch file; [ $(stat -c %Y file) -gt 978307200 ] && echo now").text == "now\n"
    code = (
        "import os, tempfile; file = tempfile.TemporaryFile(); os.fchmod(file.fileno(), 0o640); print(oct(os.fstat(3).st_mode))"
    )
    assert run(shell, f"python3 -c '{code}'").text == "0o100640\n"


def test_a_command_ends_however_deep_the_folders_are_that_it_leaves(shell: ShellTools) -> None:
    code = "import os\nfor _ in range(1_500): os.mkdir('d'); os.chdir('d')"
    running = RunningCommand(shell.sandbox, ["/bin/bash", "-c", f'cd; pwd; python3 -c "{code}"; chmod 0 ~/d'], seconds=PATIENCE)
    assert running.wait(PATIENCE)
    assert running.end is not None
    assert running.end.exit == 0
    assert not os.path.exists(running.text.strip())


def test_the_deadline_ends_everything(shell: ShellTools) -> None:
    number = fresh_number()
    result = run(shell, f"trap '' TERM INT HUP; (setsid sleep {number} &); while true; do :; done", seconds=0.5)
    assert result.text == "[ended after 0.5 seconds]"
    assert processes_with(number) == []


def test_a_fork_bomb_is_held_and_ended(shell: ShellTools) -> None:
    def attempt(pace: float) -> None:
        bomb = f"b{fresh_number().partition('.')[0]}"
        seconds = min(5 * pace, PATIENCE / 2)
        result = run(shell, f"{bomb}() {{ {bomb} | {bomb} & }}; {bomb}; sleep {pace}; echo bombed > mark", seconds=seconds)
        assert "could not start more processes" in result.text
        assert processes_with(bomb) == []

    at_some_pace(attempt)


def test_a_limit_of_processes_holds_exactly(shell: ShellTools) -> None:
    code = (
        "import os, time\nn = 0\ntry:\n  while n < 200:\n    if os.fork() == 0: time.sleep(60)\n    n += 1\n"
        "except OSError: pass\nprint(n)"
    )
    (Path(shell.sandbox.root) / "many.py").write_text(code)
    shown = run(shell, "python3 many.py").text.splitlines()[0]
    assert 20 <= int(shown) < 40


def test_endless_output_is_cut_in_the_middle(shell: ShellTools) -> None:
    result = run(shell, "echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert result.text.startswith("first\n")
    assert result.text.endswith("last\n")
    assert len(result.text) < 60_000
    assert "bytes are left out here" in result.text


def test_endless_output_is_cut_in_the_middle_at_the_deadline(shell: ShellTools) -> None:
    def attempt(pace: float) -> None:
        assert "left out here" in run(shell, "yes", seconds=0.5 * pace).text

    at_some_pace(attempt)


def test_background_jobs_have_ids_and_can_be_read_and_stopped(shell: ShellTools) -> None:
    caller = Caller(shell.tools)
    number = fresh_number()
    started = caller.call("shell", {"command": f"echo ready; sleep {number}", "background": True, "seconds": 600})
    assert started.text == "Started as job-1. Read its output with jobs."
    assert "job-1: running" in caller.call("jobs", {"action": "list"}).text
    pause = Event()
    while "ready" not in caller.call("jobs", {"action": "read", "id": "job-1"}).text:
        pause.wait(0.05)
    assert caller.call("jobs", {"action": "stop", "id": "job-1"}).text == "ready\n\n[stopped]"
    assert processes_with(number) == []
    assert "There is no job" in caller.call("jobs", {"action": "read", "id": "job-9"}).text


DOORS = ["read", "list", "search", "write", "shell reads", "shell writes"]
RULES = {"denied file": ("private.txt",), "denied folder": ("vault",), "denied pattern": ("*.pem",)}


@pytest.mark.parametrize("rule", RULES)
@NEEDS_BWRAP
def test_what_is_denied_to_one_door_is_denied_to_all(rule: str, tmp_path: Path) -> None:
    """A denied file inside an allowed root takes bubblewrap."""
    (tmp_path / "vault").mkdir()
    for name in ("private.txt", "vault/deep.txt", "a.pem", "open.txt"):
        (tmp_path / name).write_text(SECRET)
    fence = Fence(deny=RULES[rule])
    target = {"denied file": "private.txt", "denied folder": "vault/deep.txt", "denied pattern": "a.pem"}[rule]
    tools = (FileTools(tmp_path, fence=fence), SearchTools(tmp_path, fence=fence), ShellTools(tmp_path, fence=fence))
    caller = Caller(tool for one in tools for tool in one.tools)
    assert SECRET in caller.call("read", {"path": "open.txt"}).text
    assert SECRET in caller.call("shell", {"command": "cat open.txt"}).text
    assert not caller.call("read", {"path": target}).ok
    assert not caller.call("write", {"path": target, "content": "x"}).ok
    assert target not in caller.call("search", {"pattern": SECRET}).text
    assert target not in caller.call("glob", {"pattern": "**"}).text
    for command in (f"cat {target}", f"cp {target} copy; cat copy", f"ln {target} link; cat link", f"mv {target} x; cat x"):
        assert SECRET not in caller.call("shell", {"command": command}).text, command
    caller.call("shell", {"command": f"echo x > {target}; rm -rf {target}; rm -rf vault; rm -f *.pem"})
    assert (tmp_path / target).read_text() == SECRET


@pytest.mark.parametrize(
    ("fence", "path", "command"),
    [
        (Fence(deny=("vault/deep.txt",)), "vault/deep.txt", "mv vault other"),
        (Fence(deny=("a/*/deep.txt",)), "a/b/deep.txt", "mv a/b other"),
        (Fence(deny=("a/*/deep.txt",)), "a/b/deep.txt", "mv a other"),
        (Fence(allow=("open",)), "vault/deep.txt", "mv vault open/other"),
        (Fence(read_only=("vault/deep.txt",)), "vault/deep.txt", "mv vault other; mkdir vault; echo x > vault/deep.txt"),
    ],
)
@NEEDS_BWRAP
def test_a_folder_is_not_renamed_so_that_a_rule_about_its_place_does_not_fit(
    fence: Fence, path: str, command: str, tmp_path: Path
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(SECRET)
    caller = Caller((*FileTools(tmp_path, fence=fence).tools, *ShellTools(tmp_path, fence=fence).tools))
    caller.call("shell", {"command": command})
    assert (tmp_path / path).read_text() == SECRET
    assert [str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*.txt") if SECRET in one.read_text()] == [path]


def test_what_landlock_cannot_express_is_refused_without_bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evener.toolset.shell.sandbox.bwrap_works", lambda: "it is not installed.")
    (tmp_path / ".env").write_text(SECRET)
    result = run(ShellTools(tmp_path), "echo ran > mark")
    assert not result.ok
    assert "The command was not started. The folder contains denied or read-only files." in result.text
    assert not (tmp_path / "mark").exists()
    monkeypatch.setattr("evener.toolset.shell.sandbox.landlock_works", lambda: "its version is 3.")
    (tmp_path / ".env").unlink()
    with pytest.raises(SandboxRefused, match="No sandbox works here"):
        RunningCommand(ShellTools(tmp_path).sandbox, ["/bin/true"], seconds=1)


def find_python() -> str:
    """A Python of this version that another user can start, too."""
    for one in (os.path.realpath(sys.executable), f"/usr/bin/python3.{sys.version_info.minor}"):
        tried = ["runuser", "-u", "nobody", "--", one, "-c", f"import os; os.stat({str(Path(__file__).parents[2] / 'src')!r})"]
        if subprocess.run(tried, capture_output=True, timeout=PATIENCE, cwd="/").returncode == 0:
            return one
    pytest.skip("the other user cannot start this Python, or cannot read the tree")


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("runuser"), reason="needs root to become another user")
@pytest.mark.parametrize("prefer", BOTH)
def test_it_holds_for_a_user_without_privileges(prefer: str) -> None:
    """Its folder is not pytest's, which only this user can enter."""
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        root = Path(folder) / "root"
        root.mkdir()
        os.chown(root, 65534, 65534)
        at_some_pace(partial(check_as_nobody, root, prefer))


def check_as_nobody(root: Path, prefer: str, pace: float) -> None:
    shown = run_as_nobody(root, prefer, pace)
    assert "mine" in shown
    assert "full=True" in shown
    assert "Permission" in shown
    assert "700" in shown


def run_as_nobody(root: Path, prefer: str, pace: float) -> str:
    """Run some commands as another user; return how they ended and what they printed."""
    return run_python_as_nobody(
        "from evener.toolset.shell.command import RunningCommand\n"
        "from evener.toolset import ShellTools\n"
        f"box = ShellTools({str(root)!r}, prefer={prefer!r}, processes=30).sandbox\n"
        f"for line in ('echo mine > a; cat a', 'cat /proc/1/environ', 'b() {{ b | b & }}; b; sleep {0.5 * pace}',"
        " 'python3 -c \"import socket; socket.socket()\"', 'chmod 700 a; stat -c %a a'):\n"
        "    one = RunningCommand(box, ['/bin/bash', '-c', line], seconds=20); one.wait(); print(one.end, one.text[-300:])\n"
    )


def run_python_as_nobody(script: str) -> str:
    """Run a script as another user; return what it printed."""
    here = Path(__file__).parents[2]
    paths = [str(here / "src"), str(here), *(path for path in sys.path if "site-packages" in path)]
    python, search = find_python(), f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["runuser", "-u", "nobody", "--", python, "-S", "-c", f"import sys; sys.path[:0] = {paths!r}\n{script}"],
        env={**os.environ, "PATH": search},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LOCKED = """
import os
from pathlib import Path
from evener.toolset import FileTools, SearchTools, ShellTools
from tests.toolset.calls import Caller
root = Path(ROOT)
for name in ("listed", "known"):
    (root / name).mkdir()
    (root / name / ".env").write_text(SECRET)
    (root / name / "kept").write_text("kept")
caller = Caller(tool for one in (FileTools, SearchTools, ShellTools) for tool in one(root).tools)
caller.call("read", {"path": "known/kept"})
(root / "listed").chmod(0)
(root / "known").chmod(0o111)
print(caller.call("shell", {"command": "cat known/.env; chmod 700 listed known; cat listed/.env; mv known other"}).text)
print(caller.call("shell", {"command": "cat */.env"}).text)
print(caller.call("delete", {"path": "known/kept"}).text)
print(caller.call("search", {"pattern": "zebra"}).text)
for name in ("listed", "known"):
    (root / name).chmod(0o700)
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("runuser"), reason="needs root to become another user")
@NEEDS_BWRAP
def test_folders_that_cannot_be_listed_are_no_way_around_the_fence() -> None:
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        root = Path(folder) / "root"
        root.mkdir()
        os.chown(root, 65534, 65534)
        shown = run_python_as_nobody(f"ROOT, SECRET = {str(root)!r}, {SECRET!r}\n{LOCKED}")
        assert SECRET not in shown
        assert "known/kept cannot be accessed: the user who runs this has no permission." in shown
        assert "No line fits 'zebra'." in shown
        assert sorted(os.listdir(root)) == ["known", "listed"]


def test_a_folder_that_is_too_deep_to_be_checked_is_refused_and_searched_as_far_as_possible(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        for _ in range(20):
            os.mkdir("d" * 250)
            os.chdir("d" * 250)
    assert "nested too deeply to be checked" in run(ShellTools(tmp_path), "true").text
    assert Caller(SearchTools(tmp_path).tools).call("search", {"pattern": "zebra"}).text == "No line fits 'zebra'."


def test_the_plan_of_a_command_is_not_on_a_command_line(tmp_path: Path) -> None:
    """Other users can read command lines, and they are short."""
    shell = ShellTools(tmp_path, environment={"GIVEN": SECRET})
    running = RunningCommand(shell.sandbox, ["/bin/sh", "-c", "echo $GIVEN; mkfifo gate; read line < gate"], seconds=PATIENCE)
    wait_until(lambda: running.text)
    seen = [SECRET in line for line in processes_with("guard.main")]  # those of other workers, too
    running.stop()
    assert seen
    assert not any(seen)
    assert run(shell, f"echo {'x' * 90_000} | wc -c").text == "90001\n"
    assert "at most 100,000 are allowed. Write a file, and run that" in run(shell, f"echo {'x' * 100_000}").text


@NEEDS_BWRAP
def test_many_denied_files_are_kept_from_a_command(tmp_path: Path) -> None:
    for number in range(500):  # the kernel takes a time for each mount that grows with those before it
        (tmp_path / f".env.{number}").write_text(SECRET)
    assert run(ShellTools(tmp_path), "cat .env.* 2>/dev/null; echo done").text == "done\n"
    for number in range(500, 3_200):
        (tmp_path / f".env.{number}").write_text(SECRET)
    assert "more than bubblewrap can protect" in run(ShellTools(tmp_path), "cat .env.*").text


def test_the_kill_at_the_deadline_does_not_wait_for_output(shell: ShellTools) -> None:
    """Its pipe is full and is not read: all processes are gone all the same, and the guard says when it killed them."""

    def attempt(pace: float) -> None:
        gate, fed, mark = Event(), Event(), fresh_number()

        def feed(_: bytes) -> bool:
            fed.set()
            return not gate.wait(PATIENCE)

        argv = ["/bin/bash", "-c", f"(setsid yes {mark} &); yes {mark}"]
        running = RunningCommand(shell.sandbox, argv, seconds=0.5 * pace, feed=feed)
        wait_until(lambda: fed.is_set() or running.end is not None)
        assert fed.is_set(), "it was killed before it had printed anything"
        wait_until(lambda: not processes_with(mark))
        assert running.end is None
        gate.set()
        running.wait()
        assert running.end is not None
        assert (running.end.why, running.end.killed >= 0.5 * pace) == ("deadline", True)
        assert running.end.killed <= running.end.seconds

    at_some_pace(attempt)


def test_background_jobs_end_when_their_run_is_cancelled(shell: ShellTools) -> None:
    async def main() -> None:
        @tool(effect="read")
        async def wait() -> str:
            """Wait."""
            await asyncio.Event().wait()
            return ""

        started = ToolCall.of("one", "shell", {"command": f"sleep {number}", "background": True, "seconds": PATIENCE})
        model = ScriptedModel([calls(started), calls(ToolCall.of("two", "wait", {}))])
        tools = [replace(one, approval=False) for one in shell.tools]
        async with Harness(model, tools=[*tools, wait], store="memory").stream("go") as stream:
            async for event in stream:
                if isinstance(event, ToolStarted) and event.call.name == "wait":
                    await stream.cancel("enough")
            assert (await stream.result()).stop == "cancelled"

    number = fresh_number()
    asyncio.run(main())
    wait_until(lambda: "ended (cancelled)" in Caller(shell.tools).call("jobs", {"action": "list"}).text)
    assert processes_with(number) == []
