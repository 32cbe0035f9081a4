"""From objects as the API server sent them to the vocabulary of `model/`: one function a kind, pure and total.

Nothing here raises for what an object lacks or for what a user wrote into it. Where a fact is missing, the reading is
the one that releases nothing: an unknown phase of a claim is Withheld, an unreadable stop record is none.
"""
