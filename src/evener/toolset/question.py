"""A question to the user: a call that waits in the log like an approval; the decision adds the answer.

The model gives the question; the user who decides adds `answer` to the arguments. So a question outlives the process and can
be answered from another one.
"""

from typing import Annotated

from evener.tools.result import ModelRetry
from evener.tools.tool import Tool, tool
from evener.toolset.labels import label
from evener.toolset.standard import hide_arguments

ASK_USER = "ask_user"
ANSWER = "answer"


def question_tool() -> Tool:
    """Return the tool `ask_user`."""

    def ask_user(
        question: Annotated[str, "one question, with all that is needed to answer it"],
        choices: Annotated[list[str] | None, "answers to choose from, if they are few"] = None,
        answer: Annotated[str | None, "the user's answer"] = None,
    ) -> str:
        """Ask the user a question, and wait for the answer. Ask only what you cannot find out yourself."""
        del question, choices
        if answer is None:
            raise ModelRetry("The user was not asked, or gave no answer. Go on without it, and say what you assumed.")
        return answer or "(the user gave an empty answer)"

    made = tool(ask_user, effect="read", sequential=True, approval=True, timeout=None)
    return label(hide_arguments(made, (ANSWER,)), "private", source="user")  # it is the user's to give
