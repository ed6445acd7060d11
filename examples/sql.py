"""Query a file with SQL: the best-selling product of each ten minutes, and running totals."""

import tempfile
from pathlib import Path

from millstream.table import EnvironmentSettings, TableEnvironment

SALES = """tea,3,2026-03-02 09:01:00
cake,1,2026-03-02 09:04:00
tea,2,2026-03-02 09:09:00
cake,4,2026-03-02 09:12:00
tea,1,2026-03-02 09:15:00
"""

env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
env.get_config().set("parallelism.default", "1")
with tempfile.TemporaryDirectory() as directory:
    path = Path(directory, "sales.csv")
    path.write_text(SALES)
    env.execute_sql(f"""
        CREATE TABLE sales (
            product STRING, amount INT, sold TIMESTAMP(3),
            WATERMARK FOR sold AS sold - INTERVAL '1' MINUTE
        ) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')
    """)
    # Windows are final when the watermark passes their end: this query emits inserts only.
    env.execute_sql("""
        SELECT window_end, product, amount
        FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY window_start, window_end ORDER BY amount DESC) AS place
            FROM (
                SELECT window_start, window_end, product, SUM(amount) AS amount
                FROM TUMBLE(TABLE sales, DESCRIPTOR(sold), INTERVAL '10' MINUTES)
                GROUP BY window_start, window_end, product))
        WHERE place = 1
    """).print()
    # A total changes with each sale: this query emits a changelog.
    env.execute_sql("SELECT product, SUM(amount) AS amount FROM sales GROUP BY product").print()
