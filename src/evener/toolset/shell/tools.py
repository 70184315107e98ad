"""The shell tools: run a command in the sandbox, and read, list or stop the ones that run in the background."""

import os
import threading
from collections.abc import Mapping
from itertools import count
from typing import Annotated, Literal

import msgspec

from evener.errors import UsageError
from evener.tools.context import Cancellation, ToolContext
from evener.tools.result import Envelope, ModelRetry, ToolOutput, report_failure
from evener.tools.tool import Tool, tool
from evener.toolset.fence import Fence
from evener.toolset.labels import label
from evener.toolset.shell.command import CommandEnd, RunningCommand
from evener.toolset.shell.sandbox import Sandbox, SandboxRefused
from evener.toolset.standard import as_standard

MOST_SECONDS = 600
MOST_JOBS = 8
MOST_COMMAND = 100_000
"""Bytes: the kernel takes 128 KiB in one argument."""
LOOK = 0.05

Prefer = Literal["landlock", "bwrap"]


class ShellTools:
    """Commands below one root. The fence is that of the file tools: what they may not touch, a command may not either.

    Nothing reaches the network. `native`: a model that was trained on a shell of its maker's form gets it so. A background job
    ends when its run is cancelled, when this object is closed, and with this process.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] = ".",
        *,
        fence: Fence | None = None,
        approval: bool = True,
        readable: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        processes: int = 256,
        memory: int = 4 << 30,
        prefer: Prefer = "landlock",
        native: bool = True,
    ) -> None:
        if processes < 1 or memory < 1 << 20:
            raise UsageError("A shell needs room for at least 1 process and 1 MiB of memory.")
        self.sandbox = Sandbox(
            root=os.path.realpath(os.fspath(root)),
            fence=fence or Fence(),
            readable=tuple(os.path.realpath(path) for path in readable),
            environment=dict(environment or {}),
            processes=processes,
            memory=memory,
            prefer=prefer,
        )
        self._approval = approval
        self._native = native
        self._jobs: dict[str, RunningCommand] = {}
        self._numbers = count(1)
        self._lock = threading.Lock()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools `shell` and `jobs`."""
        seconds = MOST_SECONDS + 30.0
        shell = tool(self.shell, effect="write", sequential=True, approval=self._approval, timeout=seconds)
        jobs = tool(self.jobs, effect="idempotent", sequential=True)
        standard = as_standard(shell, "shell") if self._native else shell
        return (label(standard, "private", source="shell"), label(jobs, "private", source="shell"))

    def shell(
        self,
        command: Annotated[str, "the command line, for bash"],
        context: ToolContext[object],
        seconds: Annotated[float, msgspec.Meta(gt=0, le=MOST_SECONDS, description="when to give up")] = 120,
        background: Annotated[bool, "return at once with the id of a job"] = False,
    ) -> ToolOutput | Envelope:
        """Run a command in a sandbox: files of the working folder only, no network. Output and exit code are returned."""
        if "\0" in command:
            raise ModelRetry("The command has a NUL byte. Leave it out.")
        if (size := len(command.encode(errors="replace"))) > MOST_COMMAND:
            raise ModelRetry(
                f"The command has {size:,} bytes; at most {MOST_COMMAND:,} are allowed. Write a file, and run that."
            )
        if background and self._count_running() >= MOST_JOBS:
            raise ModelRetry(f"{MOST_JOBS} jobs are running, which is the most. Stop one with jobs first.")
        try:
            running = RunningCommand(self.sandbox, [*_shell(), command], seconds=seconds)
        except SandboxRefused as error:
            return report_failure(f"The command was not started. {error}")
        if background:
            return self._keep(running, context.run_cancelled)
        while not running.wait(LOOK):
            if context.cancelled.is_set():
                running.stop()
        return report_end(running, seconds)

    def jobs(
        self,
        action: Annotated[Literal["list", "read", "stop"], "what to do"],
        id: Annotated[str, "the id of the job; for read and stop"] = "",
    ) -> ToolOutput | Envelope:
        """List background jobs, read what one has printed so far, or stop one."""
        if action == "list":
            lines = [f"{name}: {_state(job)}: {job.argv[-1][:200]}" for name, job in self._jobs.items()]
            return ToolOutput("\n".join(lines) or "There are no jobs.")
        job = self._jobs.get(id)
        if job is None:
            raise ModelRetry(f"There is no job {id[:40]!r}. The jobs are: {', '.join(self._jobs) or 'none'}.")
        if action == "stop":
            job.stop()
        if job.end is None:
            return ToolOutput(f"{job.text}\n[{id} is running]")
        return report_end(job, 0)

    def close(self) -> None:
        """End all background jobs."""
        for job in self._jobs.values():
            job.stop()

    def _count_running(self) -> int:
        return sum(job.end is None for job in self._jobs.values())

    def _keep(self, running: RunningCommand, cancelled: Cancellation) -> ToolOutput:
        with self._lock:
            id = f"job-{next(self._numbers)}"
            self._jobs[id] = running
            for name in [name for name, job in self._jobs.items() if job.end is not None][:-MOST_JOBS]:
                del self._jobs[name]
        threading.Thread(target=_stop_with_run, args=(running, cancelled), name="evener-job", daemon=True).start()
        return ToolOutput(f"Started as {id}. Read its output with jobs.", {"job": id})


def _stop_with_run(running: RunningCommand, cancelled: Cancellation) -> None:
    while not running.wait(LOOK):
        if cancelled.is_set():
            running.stop()


def report_end(running: RunningCommand, seconds: float) -> ToolOutput | Envelope:
    """Return the result of a command that has ended: its output, and how it ended if that matters."""
    end = running.end or CommandEnd(why="lost")
    if end.refused:
        return report_failure(f"The command was not started. {end.refused}")
    remarks = {"deadline": f"ended after {seconds:g} seconds", "cancelled": "stopped", "lost": "its guard was killed"}
    told = [remarks[end.why]] if end.why else []
    if not end.why and end.exit:
        told.append(f"exit code {end.exit}" if end.exit > 0 else f"ended by signal {-end.exit}")
    if end.strays and not end.why:
        told.append(f"{end.strays} processes that it left behind were ended; use background to keep one")
    if end.full:
        told.append("it could not start more processes")
    text = running.text or ("" if told else "(no output)")
    return ToolOutput(
        f"{text}\n[{'; '.join(told)}]".lstrip("\n") if told else text,
        {"exit": end.exit, "why": end.why, "strays": end.strays},
    )


def _state(job: RunningCommand) -> str:
    return "running" if job.end is None else f"ended ({job.end.why or job.end.exit})"


def _shell() -> list[str]:
    return ["/bin/bash", "-c"] if os.path.exists("/bin/bash") else ["/bin/sh", "-c"]
