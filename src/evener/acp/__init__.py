"""A harness as an agent in an editor, by the Agent Client Protocol (version 1): JSON-RPC by lines over pipes."""

from evener.acp.agent import AcpAgent, serve_acp

__all__ = ["AcpAgent", "serve_acp"]
