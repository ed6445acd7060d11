"""The built-in aggregates of ``runtime/columnar/aggregates.py`` for users."""

from millstream.runtime.columnar.aggregates import Avg as Avg
from millstream.runtime.columnar.aggregates import Collect as Collect
from millstream.runtime.columnar.aggregates import Count as Count
from millstream.runtime.columnar.aggregates import CountDistinct as CountDistinct
from millstream.runtime.columnar.aggregates import First as First
from millstream.runtime.columnar.aggregates import Last as Last
from millstream.runtime.columnar.aggregates import Max as Max
from millstream.runtime.columnar.aggregates import Min as Min
from millstream.runtime.columnar.aggregates import Quantile as Quantile
from millstream.runtime.columnar.aggregates import Quantiles as Quantiles
from millstream.runtime.columnar.aggregates import Sum as Sum
