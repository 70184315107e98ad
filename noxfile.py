"""Runs the tests on each Python that is installed here: `nox`, or `nox -s tests-3.13 -- -k seals`. Needs nox, nothing else."""

import nox

nox.options.error_on_missing_interpreters = False


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def tests(session: nox.Session) -> None:
    """Install Evener with what a contributor needs and run the tests."""
    session.install("--editable", ".[dev,local]")
    session.run("python", "-m", "pytest", "-n", "auto", "--dist", "worksteal", *session.posargs)
