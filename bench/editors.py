"""`evener acp` driven by `acpx`, a client of the Agent Client Protocol: each frame is held against the protocol's typed models.

`acpx` prints every frame, in both directions. It has a home of its own, and the agent a store of its own, in a folder that is
removed.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from bench.npm_packages import NoNode, npm_environment

__all__ = ["SCENES", "EditorScene", "main", "play_scenes"]

PACKAGES = {"acpx": "0.19.1"}
ROOT = Path(__file__).parent.parent
SECONDS = 180.0
Frames = list[dict[str, object]]


class Acpx:
    """Runs `acpx` in a folder."""

    def __init__(self, folder: Path, *, own: bool) -> None:
        modules, programs = npm_environment("editors", PACKAGES, least=22, own=own)
        self._words = [str(programs / "node"), str(modules / "node_modules" / "acpx" / "dist" / "cli.js")]
        self._words += [
            "--cwd",
            str(folder),
            "--ttl",
            "1",
            "--agent",
            f"{shlex.quote(sys.executable)} -m evener acp --harness bench.editor_agent:shop",
        ]
        self._environment = {
            **os.environ, "HOME": str(folder), "EVENER_EDITOR_STORE": str(folder / "runs.db"), "PYTHONPATH": str(ROOT),
            "PATH": os.pathsep.join((str(programs), os.environ.get("PATH", ""))), "EVENER_TRACES": "off",
        }  # fmt: skip

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Start a command that prints frames."""
        return subprocess.Popen(
            [*self._words, "--format", "json", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=self._environment,
        )  # fmt: skip

    def run(self, *words: str) -> Frames:
        """Run a command; give the frames that it printed."""
        with self.start(*words) as process:
            try:
                said, _ = process.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return frames_of(said.splitlines())


def frames_of(lines: Sequence[str]) -> Frames:
    """Return the lines that are frames."""
    return [json.loads(line) for line in lines if line.startswith('{"jsonrpc"')]


class EditorScene(msgspec.Struct, frozen=True):
    """A prompt to one session, how permissions are answered, and what must be among the frames."""

    name: str
    words: tuple[str, ...]
    expected: tuple[str, ...]


SCENES = (
    EditorScene("prompt", ("exec", "hello"), ("Heard 1: hello", '"end_turn"')),
    EditorScene("tool call", ("exec", "look out"), ('"in_progress"', "snow in Oslo", '"completed"', '"end_turn"')),
    EditorScene(
        "permission, approved",
        ("--approve-all", "exec", "erase it"),
        ("session/request_permission", "erased /x", '"completed"'),
    ),
    EditorScene(
        "permission, denied", ("--deny-all", "exec", "erase it"), ("session/request_permission", "ApprovalRejected", '"failed"')
    ),
    EditorScene(
        "the editor writes a file", ("--approve-all", "exec", "write it"), ("fs/write_text_file", '"diff"', '"completed"')
    ),
    EditorScene(
        "the editor reads it", ("--approve-all", "exec", "read it"), ("fs/read_text_file", "by the editor", '"completed"')
    ),
    EditorScene(
        "a terminal of the editor",
        ("--approve-all", "exec", "run it"),
        ("terminal/create", "from a terminal\\n", "exit code 0"),
    ),
)


def play_scenes(scenes: Sequence[EditorScene], *, own: bool = True) -> list[tuple[str, int, str]]:
    """Play scenes of one prompt each; give for each its name, the number of frames, and what was wrong."""
    with tempfile.TemporaryDirectory(prefix="evener-editors-") as name:
        acpx = Acpx(Path(name), own=own)
        return [judge(scene.name, acpx.run(*scene.words), scene.expected) for scene in scenes]


def play_session() -> list[tuple[str, int, str]]:
    """Cancel a prompt of a session, and resume the session in another process."""
    found = []
    with tempfile.TemporaryDirectory(prefix="evener-editors-") as name:
        acpx = Acpx(Path(name), own=True)
        acpx.run("sessions", "new")
        cancelled = cancel_scene(acpx)
        found.append(judge("cancel", cancelled, ("session/cancel", '"stopReason": "cancelled"')))
        resumed = retry(lambda: acpx.run("prompt", "and again"), "session/resume")
        found.append(judge("a session that is resumed", resumed, ("session/resume", ": wait for it; and again")))
    return found


def cancel_scene(acpx: Acpx) -> Frames:
    """Cancel a prompt while its tool runs."""
    lines: list[str] = []
    with acpx.start("prompt", "wait for it") as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "in_progress" in line:
                acpx.run("cancel")
    return frames_of(lines)


def retry(work: Callable[[], Frames], word: str) -> Frames:
    """Repeat it until a frame has the word: the process that holds the session for `acpx` ends after a second of silence."""
    frames: Frames = []
    for _ in range(5):
        time.sleep(3.0)
        frames = work()
        if word in json.dumps(frames):
            break
    return frames


def judge(name: str, frames: Frames, expected: Sequence[str]) -> tuple[str, int, str]:
    """Return the scene with what is wrong: a frame that its model refuses, or something that did not happen."""
    text = "\n".join(json.dumps(frame) for frame in frames)
    wrong = [
        *refusals_of(frames),
        *(f"{word} is missing" for word in expected if json.dumps(word)[1:-1] not in text and word not in text),
    ]
    return name, len(frames), "; ".join(wrong)


def refusals_of(frames: Frames) -> list[str]:
    """Return what the typed models say against frames of the agent."""
    from acp import schema
    from pydantic import BaseModel, ValidationError

    results: Mapping[str, type[BaseModel]] = {
        "initialize": schema.InitializeResponse, "session/new": schema.NewSessionResponse,
        "session/load": schema.LoadSessionResponse, "session/resume": schema.ResumeSessionResponse,
        "session/list": schema.ListSessionsResponse, "session/close": schema.CloseSessionResponse,
        "session/prompt": schema.PromptResponse,
    }  # fmt: skip
    requests: Mapping[str, type[BaseModel]] = {
        "session/update": schema.SessionNotification, "session/request_permission": schema.RequestPermissionRequest,
        "fs/read_text_file": schema.ReadTextFileRequest, "fs/write_text_file": schema.WriteTextFileRequest,
        "terminal/create": schema.CreateTerminalRequest, "terminal/output": schema.TerminalOutputRequest,
        "terminal/wait_for_exit": schema.WaitForTerminalExitRequest, "terminal/kill": schema.KillTerminalRequest,
        "terminal/release": schema.ReleaseTerminalRequest,
    }  # fmt: skip
    methods = {frame["id"]: str(frame["method"]) for frame in frames if "id" in frame and "method" in frame}
    wrong = []
    for frame in frames:
        method = str(frame.get("method", ""))
        if method:
            model, value = requests.get(method), frame.get("params")
        else:
            model, value = results.get(methods.get(frame.get("id"), "")), frame.get("result")
            if "error" in frame and not str(frame.get("id")).startswith("evener-"):  # the editor may refuse what it is asked
                wrong.append(f"an error: {json.dumps(frame['error'])[:300]}")
        try:
            if model is not None and "error" not in frame:
                model.model_validate(value)
        except ValidationError as error:
            wrong.append(f"refused: {str(error)[:300]}")
    return wrong


def main() -> int:
    """Play all scenes, and print a table."""
    try:
        found = [*play_scenes(SCENES), *play_session()]
    except NoNode as why:
        print(f"not run: {why}")
        return 1
    print(f"acpx {PACKAGES['acpx']} drives evener acp; frames of the agent are held against agent-client-protocol")
    for name, frames, wrong in found:
        print(f"{name:28} {frames:4} frames  {wrong or 'as it should be'}")
    bad = sum(bool(wrong) for *_, wrong in found)
    print(f"{len(found) - bad} of {len(found)} scenes went as they should")
    return 1 if bad else 0
