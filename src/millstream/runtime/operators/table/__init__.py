"""Operators over changelogs: what statements of SQL and the Table API become.

Batches carry RowKinds; everything is on Arrow columns.  The operators know no SQL: there are
positions of columns, bound expressions and types.  Before each operator stands its factory, a
picklable dataclass of its parameters; ``sql/lowering`` makes them.  The edge to a keyed operator
must be partitioned by ``KeyColumns`` (``types/field_access.py``) of the same columns.

Parameters with the same meaning in all factories: ``update_before``, whether downstream operators
need -U before +U; ``state_ttl``, in milliseconds of processing time, 0 for no expiration;
``mini_batch``, whether only the net changes of a batch are emitted.

Read next: ``runtime/operators/table/calc.py``, then ``runtime/operators/table/group_aggregate.py``.
"""
