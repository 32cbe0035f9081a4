"""What others wrote, made fit for a terminal: a pod's last words may hold sequences that move the cursor or retitle it.

As kubectl itself does since CVE-2021-25743: a control character is shown in caret notation, `^[` for ESC.
"""

_KEPT = "\n\t"
_CARETS = {
    code: f"^{chr(code ^ 0x40)}" if code < 0x80 else f"\\x{code:02x}"
    for code in (*range(0x20), 0x7F, *range(0x80, 0xA0))
    if chr(code) not in _KEPT
}


def printable(text: str) -> str:
    return text.translate(_CARETS)
