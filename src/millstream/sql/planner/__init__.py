"""The planner: logical plan, changelog planning and EXPLAIN."""
