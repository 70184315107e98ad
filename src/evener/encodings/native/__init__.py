"""The forms of standard tools that models were trained on: files, a shell, a computer. Pure."""
