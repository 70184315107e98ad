"""What providers hold of a conversation, as the log tells it: one standing a model. Pure.

An answer that a provider keeps never changes, so a chain can be gone on with from any branch, after any crash. A conversation
object grows with every request: it is only good while each request to it ended in an answer that we have, on this very log.
"""

from typing import Literal

import msgspec
from msgspec.structs import replace

from evener import events as ev

__all__ = ["Standing", "asked", "broke", "gave", "parted", "standing_of"]

Health = Literal["good", "unsure", "forked", "lost", "refused"]


class Standing(msgspec.Struct, frozen=True):
    """What the provider of one model holds. `message` is the last one in it; empty when none of ours is.

    `unsure`: a request to a conversation came to no answer, so nobody knows what is in it. `forked`: another branch speaks to
    it. `lost`: the provider says that it is gone, in the words of `why`. `refused`: it keeps nothing for this account.
    """

    model: str
    held: ev.Held
    message: str = ""
    health: Health = "good"
    why: str = ""


Standings = tuple[Standing, ...]


def standing_of(standings: Standings, model: str) -> Standing | None:
    """That of this model, if there is one."""
    return next((one for one in standings if one.model == model), None)


def asked(standings: Standings, event: ev.ModelCalled, rests: ev.Held) -> Standings:
    """After a request that rests on something: what is said to a conversation may be in it, whether or not we hear of it."""
    known = standing_of(standings, event.model)
    if known is None or known.held.id != rests.id:
        known = Standing(event.model, rests)  # the user named it
    return _with(standings, replace(known, health="unsure") if rests.mode == "conversation" else known)


def gave(standings: Standings, model: str, event: ev.Replied, held: ev.Held) -> Standings:
    """After an answer that the provider keeps."""
    return _with(standings, Standing(model, held, event.message.id))


def broke(standings: Standings, model: str, event: ev.ModelFailed) -> Standings:
    """After a request that failed."""
    known = standing_of(standings, model)
    if event.stale:
        known = known or Standing(model, ev.Held("chain", ""))
        return _with(standings, replace(known, health=event.stale, why=event.message))
    if event.untaken and known is not None and known.health == "unsure":
        return _with(standings, replace(known, health="good"))
    return standings


def parted(standings: Standings) -> Standings:
    """On a fork: chains go on from where it began, conversations belong to the branch that it left."""
    left = tuple(replace(one, health="forked") if one.held.mode == "conversation" else one for one in standings)
    return _with(left, Standing("", ev.Held("conversation", ""), health="forked"))


def _with(standings: Standings, new: Standing) -> Standings:
    return (*(one for one in standings if one.model != new.model), new)
