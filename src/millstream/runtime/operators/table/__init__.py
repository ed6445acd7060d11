"""Operators over changelogs: what statements of SQL and the Table API become.

What it is: operators whose batches carry kinds of rows, all of them on Arrow columns.  The plan
(``sql/``) makes their factories, which stand in ``factories.py``; programs do not.

What it is not: aware of SQL.  Names are gone here: there are positions of columns, bound
expressions and types.

Read next: ``runtime/operators/table/factories.py``, then ``runtime/operators/table/calc.py``.
"""
