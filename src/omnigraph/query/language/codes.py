"""Every code of the query language, with its meaning in one line. A code never changes its meaning or its number."""

from __future__ import annotations

from collections.abc import Mapping

CODES: Mapping[str, str] = {
    # The text itself.
    "Q000": "the text is not in the language",
    "Q001": "two queries of one text have the same name",
    "D2": "one query mixes insert or update with delete",
    # Names.
    "T1": "there is no such node or edge type",
    "T2": "there is no such edge",
    "T3": "the type has no such property",
    "T4": "the variable is not bound here",
    "T5": "the variable is bound twice, or is named like a parameter",
    "T6": "two optional blocks bind the same variable, or one uses a variable of the other",
    # Values and operators.
    "T7": "the operator does not take operands of these types",
    "T8": "the value cannot become the type that is needed here",
    "T9": "the text is not a value of the enum",
    "T10": "a comparison with null never matches",
    "T11": "a Blob is never a query value",
    # Patterns.
    "T12": "the edge does not connect these two types",
    "T13": "the type of the variable cannot be told",
    "T14": "an edge between different types has no either direction",
    "T15": "the bounds of a hop are not 1 or more, low before high",
    "T16": "an edge between different types cannot be followed repeatedly",
    "T17": "an edge variable stands for one edge and cannot have bounds",
    "T18": "a not block uses no variable from outside",
    # Functions.
    "T19": "there is no such function",
    "T20": "the arguments of the function are wrong",
    "T21": "the function cannot be used in this place",
    "T22": "the aggregate does not take this argument",
    "T23": "distinct has no meaning here",
    "T24": "nearest needs a limit",
    "T25": "a rank is ordered best first",
    # Results.
    "T26": "two result columns have the same name",
    "T27": "the result column has no name",
    "T28": "there is no such result column",
    "T29": "the order is not decided by the grouped or distinct rows",
    "T30": "values of this type have no order",
    "T31": "limit and offset take a whole number, 0 or more",
    # Parameters.
    "T32": "two parameters have the same name",
    "T33": "a parameter cannot have this type",
    # Mutations.
    "T34": "the property is given twice",
    "T35": "an insert lacks a required property or a member of the key",
    "T36": "an insert of an edge lacks an end",
    "T37": "the property cannot be set",
    "T38": "null for a property that is required",
    "T39": "a mutation takes literals, parameters and now()",
    # Parameters of one call.
    "P1": "a required parameter is not given",
    "P2": "the query has no such parameter",
    "P3": "the value of a parameter does not fit its type or its use",
    # Warnings of lint; they refuse nothing.
    "L1": "the parameter is not used",
    "L2": "parts of the pattern are not connected: every row of one is paired with every row of the other",
}
