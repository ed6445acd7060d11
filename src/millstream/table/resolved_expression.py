"""``ResolvedExpression`` under PyFlink's path."""

from millstream.sql.catalog.schema import ResolvedExpression as ResolvedExpression
