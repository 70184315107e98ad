"""The values: blocks, messages, transcripts, asks, replies, deltas and losses. Pure, frozen, the same for every provider."""

from evener.transcript.ask import (
    Ask,
    Cache,
    Choice,
    ChoiceMode,
    Effort,
    Extra,
    FreeText,
    HostedTool,
    Namespace,
    OutputSchema,
    Reasoning,
    Settings,
    State,
    ToolSpec,
)
from evener.transcript.blocks import (
    Block,
    CacheTtl,
    Citation,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    ReasoningBlock,
    Remote,
    ResultContent,
    Source,
    Stored,
    TextBlock,
    ToolCall,
    ToolResult,
    Uploaded,
)
from evener.transcript.completer import Completer
from evener.transcript.json import dump as dump_transcript
from evener.transcript.json import dump_message, load_message
from evener.transcript.json import load as load_transcript
from evener.transcript.loss import Loss, LossKind, LossRefused
from evener.transcript.message import Message, Role
from evener.transcript.origin import Origin, Seal
from evener.transcript.repair import Exchange, Repair, RepairRules, repair
from evener.transcript.reply import Reply, Stop, StopReason
from evener.transcript.transcript import Node, Transcript
from evener.transcript.usage import Usage

__all__ = [
    "Ask",
    "Block",
    "Cache",
    "CacheTtl",
    "Choice",
    "ChoiceMode",
    "Citation",
    "Completer",
    "DocumentBlock",
    "Effort",
    "Exchange",
    "Extra",
    "FreeText",
    "HostedBlock",
    "HostedTool",
    "ImageBlock",
    "Inline",
    "Loss",
    "LossKind",
    "LossRefused",
    "Message",
    "Namespace",
    "Node",
    "Origin",
    "OutputSchema",
    "Reasoning",
    "ReasoningBlock",
    "Remote",
    "Repair",
    "RepairRules",
    "Reply",
    "ResultContent",
    "Role",
    "Seal",
    "Settings",
    "Source",
    "State",
    "Stop",
    "StopReason",
    "Stored",
    "TextBlock",
    "ToolCall",
    "ToolResult",
    "ToolSpec",
    "Transcript",
    "Uploaded",
    "Usage",
    "dump_message",
    "dump_transcript",
    "load_message",
    "load_transcript",
    "repair",
]
