"""Tables of a lakehouse, Delta Lake and Apache Iceberg: data files, and a log that names them."""
