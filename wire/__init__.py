"""Whatever crosses a process boundary: objects, journal entries, archive rules, tokens, names.

Membership rule: a type lives here if two programs exchange it, and nowhere else. Imports pydantic and nothing of ours.
"""
