"""The commands, one function each. A command is loaded when it is called."""
